import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.hudi.metadata.HoodieTableMetadata;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.StoragePathInfo;

/**
 * All files that a metadata table lists, relative to the table and joined by NUL, which no path holds. In Java in one
 * piece: asking file by file from Python would take minutes for a large table. Janino compiles it: raw types, no lambdas.
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
      Map found = table.getAllFilesInPartitions(folders);
      List files = new ArrayList();
      for (int index = 0; index < partitions.size(); index++) {
        String partition = (String) partitions.get(index);
        List listed = (List) found.get(new StoragePath((String) folders.get(index)).toString());
        if (listed == null) {
          // Taking it for empty would make orphans of all its files.
          throw new IllegalStateException("the metadata table names partition '" + partition + "' but does not list it");
        }
        Iterator each = listed.iterator();
        while (each.hasNext()) {
          String name = ((StoragePathInfo) each.next()).getPath().getName();
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
