import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.channels.FileChannel;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.hudi.client.SparkRDDTableServiceClient;
import org.apache.hudi.client.SparkRDDWriteClient;
import org.apache.hudi.common.engine.HoodieEngineContext;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.model.HoodieWriteStat;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.TableSchemaResolver;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.common.table.timeline.TimelineUtils;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.hudi.io.util.FileIOUtils;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.table.HoodieTable;

/**
 * Executes a planned compaction, and commits it only while the table's claim file still has the caller's claim, which it checks
 * inside Hudi's lock. Otherwise a process that was taken for dead and then wakes up would delete its successor's files when it
 * commits, and publish files that the successor has deleted. With "flush", the base files are on the local disk before the commit
 * that names them. Applied to a write client, whose settings it uses; returns the
 * numbers of file groups, log files and rows, and the bytes of the logs read and the base files written, separated by commas.
 * Compiled by Janino: raw types, no lambdas.
 */
public class Compaction implements java.util.function.Function {
  private final String claimPath;
  private final String claim;
  private final String instant;
  private final boolean flush;

  public Compaction(String claimPath, String claim, String instant, String flush) {
    this.claimPath = claimPath;
    this.claim = claim;
    this.instant = instant;
    this.flush = flush.equals("flush");
  }

  public Object apply(Object writeClient) {
    SparkRDDWriteClient client = (SparkRDDWriteClient) writeClient;
    Fenced fenced = new Fenced(client.getEngineContext(), client.getConfig(), claimPath, claim, flush);
    try {
      return fenced.run(instant);
    } catch (IOException error) {
      throw new IllegalStateException("cannot read the timeline: " + error.getMessage(), error);
    } finally {
      fenced.close();
    }
  }

  public static class Fenced extends SparkRDDTableServiceClient {
    private final String claimPath;
    private final String claim;
    private final boolean flush;

    public Fenced(HoodieEngineContext context, HoodieWriteConfig config, String claimPath, String claim, boolean flush) {
      super(context, config, Option.empty());
      this.claimPath = claimPath;
      this.claim = claim;
      this.flush = flush;
    }

    public String run(String instant) throws IOException {
      boolean pending;
      // Inside the lock: an earlier claimant that is in its commit ends it first, and any other no longer gets into one.
      txnManager.beginStateChange(Option.empty(), Option.empty());
      try {
        requireClaim();
        pending = meta().getActiveTimeline().filterPendingCompactionTimeline().containsInstant(instant);
      } finally {
        txnManager.endStateChange(Option.empty());
      }
      if (pending) {
        // With this table's concurrency mode Hudi keeps a heartbeat meanwhile, and refuses if there is one already.
        compact(instant, true);
      }
      return figures(instant);
    }

    protected void completeCompaction(HoodieCommitMetadata metadata, HoodieTable table, String instant, List ofMetadataTable) {
      if (!flush) {
        super.completeCompaction(metadata, table, instant, ofMetadataTable);
        return;
      }
      try {
        flushFiles(metadata);
        // File systems keep times in steps of up to two seconds.
        long began = System.currentTimeMillis() - 2000;
        super.completeCompaction(metadata, table, instant, ofMetadataTable);
        // At once, because a completed instant that a power cut leaves empty stops every reader.
        flushChanges(new File(basePath, ".hoodie/metadata"), began);
        flushChanges(new File(basePath, ".hoodie/timeline"), began);
      } catch (IOException error) {
        throw new IllegalStateException("cannot flush the files of the compaction: " + error.getMessage(), error);
      }
    }

    private static void flushChanges(File folder, long since) throws IOException {
      File[] files = folder.listFiles();
      for (int i = 0; files != null && i < files.length; i++) {
        if (files[i].isDirectory()) {
          flushChanges(files[i], since);
        } else if (files[i].lastModified() >= since) {
          force(files[i]);
        }
      }
      if (folder.lastModified() >= since) {
        force(folder);
      }
    }

    private void flushFiles(HoodieCommitMetadata metadata) throws IOException {
      Set files = new HashSet();
      Iterator stats = metadata.getWriteStats().iterator();
      while (stats.hasNext()) {
        File file = new File(basePath, ((HoodieWriteStat) stats.next()).getPath());
        files.add(file);
        files.add(new File(file.getParentFile(), "." + file.getName() + ".crc"));
        files.add(file.getParentFile());
      }
      Iterator all = files.iterator();
      while (all.hasNext()) {
        // The checksum file need not exist.
        force((File) all.next());
      }
    }

    private static void force(File file) throws IOException {
      FileChannel channel;
      try {
        channel = FileChannel.open(file.toPath(), new OpenOption[] {StandardOpenOption.READ});
      } catch (NoSuchFileException error) {
        // A transaction beside this compaction has deleted it, such as a marker.
        return;
      }
      try {
        channel.force(true);
      } finally {
        channel.close();
      }
    }

    protected void preCommit(HoodieCommitMetadata metadata, boolean resolveConflicts) {
      requireClaim();
      // The newest commit's columns are the table's, and a transaction may have added some since this compaction began.
      try {
        metadata.addMetadata(HoodieCommitMetadata.SCHEMA_KEY, new TableSchemaResolver(meta()).getTableSchema(false).toString());
      } catch (Exception error) {
        throw new IllegalStateException("cannot read the table's columns: " + error.getMessage(), error);
      }
      super.preCommit(metadata, resolveConflicts);
    }

    private void requireClaim() {
      String current;
      try {
        InputStream stream = storage.open(new StoragePath(claimPath));
        try {
          current = new String(FileIOUtils.readAsByteArray(stream), "UTF-8");
        } finally {
          stream.close();
        }
      } catch (IOException error) {
        throw new IllegalStateException("cannot read the claim " + claimPath + ": " + error.getMessage(), error);
      }
      if (!current.equals(claim)) {
        throw new IllegalStateException("hudi-ingest claim: this try was taken for dead, and another has taken over: " + current);
      }
    }

    private String figures(String instant) throws IOException {
      HoodieTimeline done = meta().getActiveTimeline().getCommitsTimeline().filterCompletedInstants();
      Iterator instants = done.getInstants().iterator();
      while (instants.hasNext()) {
        HoodieInstant candidate = (HoodieInstant) instants.next();
        if (candidate.requestedTime().equals(instant)) {
          return figures(TimelineUtils.getCommitMetadata(candidate, done));
        }
      }
      throw new IllegalStateException("compaction " + instant + " is neither pending nor completed: another writer removed it");
    }

    private static String figures(HoodieCommitMetadata commit) {
      long groups = 0;
      long logs = 0;
      long rows = 0;
      long logBytes = 0;
      long bytes = 0;
      Iterator stats = commit.getWriteStats().iterator();
      while (stats.hasNext()) {
        HoodieWriteStat stat = (HoodieWriteStat) stats.next();
        groups += 1;
        logs += stat.getTotalLogFilesCompacted();
        rows += stat.getNumWrites();
        logBytes += stat.getTotalLogSizeCompacted();
        bytes += stat.getFileSizeInBytes();
      }
      return groups + "," + logs + "," + rows + "," + logBytes + "," + bytes;
    }

    private HoodieTableMetaClient meta() {
      return HoodieTableMetaClient.builder().setConf(storageConf).setBasePath(basePath).build();
    }
  }
}
