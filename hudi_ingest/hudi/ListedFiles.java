import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.hudi.metadata.HoodieTableMetadata;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.StoragePathInfo;

/**
 * Lists all files in a metadata table, relative to the table and joined by NUL, which no path contains. One piece of Java,
 * because asking file by file from Python would take minutes for a large table. Compiled by Janino: raw types, no lambdas.
 */
public class ListedFiles implements java.util.function.Function {
  private final String basePath;

  public ListedFiles(String basePath) {
    this.basePath = basePath;
  }

  public Object apply(Object metadata) {
    try {
      HoodieTableMetadata table = (HoodieTableMetadata) metadata;
      List partitions = table.getAllPartitionPaths();
      List folders = new ArrayList();
      for (int index = 0; index < partitions.size(); index++) {
        folders.add(folder((String) partitions.get(index)));
      }
      Map listings = table.getAllFilesInPartitions(folders);
      List files = new ArrayList();
      for (int index = 0; index < partitions.size(); index++) {
        String partition = (String) partitions.get(index);
        List listed = (List) listings.get(new StoragePath((String) folders.get(index)).toString());
        if (listed == null) {
          // Treating it as empty would make all its files look like orphans.
          throw new IllegalStateException("the metadata table names partition '" + partition + "' but does not list it");
        }
        Iterator infos = listed.iterator();
        while (infos.hasNext()) {
          String name = ((StoragePathInfo) infos.next()).getPath().getName();
          files.add(partition.isEmpty() ? name : partition + "/" + name);
        }
      }
      return String.join("\0", files);
    } catch (java.io.IOException error) {
      throw new IllegalStateException("cannot read the metadata table: " + error.getMessage(), error);
    }
  }

  private String folder(String partition) {
    return partition.isEmpty() ? basePath : basePath + "/" + partition;
  }
}
