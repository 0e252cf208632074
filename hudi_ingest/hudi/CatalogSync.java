import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.common.fs.FSUtils;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.hive.HiveSyncTool;

/**
 * Syncs a table to a Hive metastore with Hudi's own tool, and gives up after some seconds; called with Spark's Hadoop
 * configuration, it returns why it failed, or nothing. A sync that was given up may go on: each of its calls to the metastore
 * has a timeout, and the next sync of the same table in this JVM waits for it, so that it cannot undo what that one writes.
 * Compiled by Janino: raw types, no lambdas.
 */
public class CatalogSync implements Function, Callable {
  private final Properties sync;
  private final Map hive;
  private final long seconds;
  private final String syncedInstant;
  private final String syncedCompletion;
  private Configuration configuration;

  public CatalogSync(String syncJson, String hiveJson, String seconds, String syncedInstant, String syncedCompletion)
      throws Exception {
    ObjectMapper mapper = new ObjectMapper();
    this.sync = new Properties();
    this.sync.putAll((Map) mapper.readValue(syncJson, Map.class));
    this.hive = (Map) mapper.readValue(hiveJson, Map.class);
    this.seconds = Long.parseLong(seconds);
    this.syncedInstant = syncedInstant;
    this.syncedCompletion = syncedCompletion;
  }

  public Object apply(Object hadoopConfiguration) {
    // A copy, because the tool changes it.
    configuration = new Configuration((Configuration) hadoopConfiguration);
    for (Object entry : hive.entrySet()) {
      configuration.set((String) ((Map.Entry) entry).getKey(), (String) ((Map.Entry) entry).getValue());
    }
    FutureTask task = new FutureTask(this);
    Thread thread = new Thread(task, "catalog sync of " + basePath());
    thread.setDaemon(true);
    thread.start();
    try {
      return task.get(seconds, TimeUnit.SECONDS);
    } catch (TimeoutException error) {
      task.cancel(true);
      return "hudi-ingest catalog: no answer within " + seconds + " s";
    } catch (ExecutionException error) {
      return causes(error.getCause());
    } catch (InterruptedException error) {
      return causes(error);
    }
  }

  /** A line for each cause, the outermost first, without the stack traces that Hive puts into messages. */
  private static String causes(Throwable error) {
    StringBuilder lines = new StringBuilder();
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      String message = String.valueOf(cause.getMessage()).split("\\R", 2)[0];
      lines.append(cause.getClass().getSimpleName()).append(": ").append(message).append("\n");
    }
    return lines.toString();
  }

  public Object call() {
    synchronized (("hudi-ingest catalog " + basePath()).intern()) {
      if (!Thread.currentThread().isInterrupted()) {
        new Tool(sync, configuration, syncedInstant, syncedCompletion).syncHoodieTable();
      }
    }
    return "";
  }

  private String basePath() {
    return sync.getProperty("hoodie.datasource.meta.sync.base.path");
  }

  public static class Tool extends HiveSyncTool {
    private static final String INSTANT = "last_commit_time_sync";
    private static final String COMPLETION = "last_commit_completion_time_sync";
    private final String syncedInstant;
    private final String syncedCompletion;

    public Tool(Properties sync, Configuration configuration, String syncedInstant, String syncedCompletion) {
      super(sync, configuration);
      this.syncedInstant = syncedInstant;
      this.syncedCompletion = syncedCompletion;
    }

    /** A MERGE_ON_READ table is three tables there; none is touched if one of the names is taken. */
    protected void doSync() {
      requireOwnTable(getTableName());
      requireOwnTable(snapshotTableName);
      if (roTableName.isPresent()) {
        requireOwnTable((String) roTableName.get());
      }
      super.doSync();
    }

    protected void syncHoodieTable(String table, boolean realtime, boolean readOptimized) {
      if (syncClient.tableExists(table)) {
        skipWhatIsKnown(table);
      }
      super.syncHoodieTable(table, realtime, readOptimized);
    }

    /** Otherwise Hudi would replace a table at another location, whoever it belongs to. */
    private void requireOwnTable(String table) {
      if (!syncClient.tableExists(table)) {
        return;
      }
      String location = syncClient.getTableLocation(table);
      if (!FSUtils.comparePathsWithoutScheme(syncClient.getBasePath(), location)) {
        throw new IllegalStateException("hudi-ingest catalog: it already has a table " + table + ", at " + location);
      }
    }

    /** Once the last commit that the catalog itself knows is archived, Hudi would list all partitions. */
    private void skipWhatIsKnown(String table) {
      Option last = syncClient.getLastCommitTimeSynced(table);
      if (!syncedInstant.isEmpty() && last.isPresent() && ((String) last.get()).compareTo(syncedInstant) < 0
          && syncClient.getActiveTimeline().containsInstant(syncedInstant)) {
        Map properties = new HashMap();
        properties.put(INSTANT, syncedInstant);
        properties.put(COMPLETION, syncedCompletion);
        syncClient.updateTableProperties(table, properties);
      }
    }
  }
}
