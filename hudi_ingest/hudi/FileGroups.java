import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import org.apache.hudi.common.config.HoodieMetadataConfig;
import org.apache.hudi.common.engine.HoodieLocalEngineContext;
import org.apache.hudi.common.fs.FSUtils;
import org.apache.hudi.common.model.FileSlice;
import org.apache.hudi.common.model.HoodieBaseFile;
import org.apache.hudi.common.model.HoodieFileGroup;
import org.apache.hudi.common.model.HoodieLogFile;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.view.FileSystemViewManager;
import org.apache.hudi.common.table.view.HoodieTableFileSystemView;

/**
 * Lists the file groups of a table, or of some of its partitions: live ones and those that were replaced, as long as Hudi hides
 * their ids. Lines of `live` or `replaced`, partition path, file id and, of a live one, the newest instant in it, its
 * bytes and, with `files`, the names of its base file and its log files, separated by tabs. One piece of Java, because asking
 * group by group from Python would take minutes for a large table. Compiled by Janino: raw types, no lambdas.
 */
public class FileGroups implements java.util.function.Function {
  private static final String LAST = "99991231235959999";
  private final String partitions;
  private final boolean files;

  /** `partitions`: their paths joined by NUL, or `*` for all. `files`: `true` or `false`. */
  public FileGroups(String partitions, String files) {
    this.partitions = partitions;
    this.files = Boolean.parseBoolean(files);
  }

  public Object apply(Object metaClient) {
    HoodieTableMetaClient meta = (HoodieTableMetaClient) metaClient;
    HoodieLocalEngineContext engine = new HoodieLocalEngineContext(meta.getStorageConf());
    boolean listed = meta.getTableConfig().isMetadataTableAvailable();
    HoodieMetadataConfig config = HoodieMetadataConfig.newBuilder().enable(listed).build();
    List paths = partitions.equals("*") ? FSUtils.getAllPartitionPaths(engine, meta, config) : Arrays.asList(partitions.split("\0", -1));
    HoodieTableFileSystemView view = FileSystemViewManager.createInMemoryFileSystemView(engine, meta, config);
    List lines = new ArrayList();
    try {
      // At once: the metadata table takes as long for one partition as for a hundred.
      view.loadPartitions(paths);
      Iterator each = paths.iterator();
      while (each.hasNext()) {
        String path = (String) each.next();
        // What a pending compaction reads belongs to its slice, too.
        Iterator slices = (files ? view.getLatestMergedFileSlicesBeforeOrOn(path, LAST) : view.getLatestFileSlices(path)).iterator();
        while (slices.hasNext()) {
          FileSlice slice = (FileSlice) slices.next();
          lines.add("live\t" + path + "\t" + slice.getFileId() + "\t" + slice.getLatestInstantTime() + "\t" + slice.getTotalFileSize() + names(slice));
        }
        Iterator groups = view.getAllReplacedFileGroups(path).iterator();
        while (groups.hasNext()) {
          lines.add("replaced\t" + path + "\t" + ((HoodieFileGroup) groups.next()).getFileGroupId().getFileId() + "\t\t0");
        }
      }
    } finally {
      view.close();
    }
    return String.join("\n", lines);
  }

  private String names(FileSlice slice) {
    if (!files) {
      return "";
    }
    StringBuilder names = new StringBuilder("\t");
    if (slice.getBaseFile().isPresent()) {
      names.append(((HoodieBaseFile) slice.getBaseFile().get()).getFileName());
    }
    Iterator logs = slice.getLogFiles().iterator();
    while (logs.hasNext()) {
      names.append("\t").append(((HoodieLogFile) logs.next()).getFileName());
    }
    return names.toString();
  }
}
