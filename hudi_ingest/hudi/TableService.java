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
import org.apache.hudi.common.model.HoodieReplaceCommitMetadata;
import org.apache.hudi.common.model.HoodieWriteStat;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.TableSchemaResolver;
import org.apache.hudi.common.table.timeline.HoodieActiveTimeline;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.common.table.timeline.TimelineUtils;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.hudi.io.util.FileIOUtils;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.table.HoodieTable;
import org.apache.hudi.table.action.HoodieWriteMetadata;

/**
 * Executes a planned compaction or clustering, and commits it only while the table's claim file still has the caller's claim, which
 * it checks inside Hudi's lock. Otherwise a process that was taken for dead and then wakes up would delete its successor's files
 * when it commits, and publish files that the successor has deleted. With "flush", the base files are on the local disk before the
 * commit that names them, and what Hudi wrote below .hoodie right after it. Applied to a write client, whose settings it uses;
 * returns the numbers of file groups written, file groups replaced, log files and rows, and the bytes of the logs read and the base
 * files written, separated by commas. Compiled by Janino: raw types, no lambdas.
 */
public class TableService implements java.util.function.Function {
  private final String service;
  private final String claimPath;
  private final String claim;
  private final String instant;
  private final boolean flush;

  public TableService(String service, String claimPath, String claim, String instant, String flush) {
    this.service = service;
    this.claimPath = claimPath;
    this.claim = claim;
    this.instant = instant;
    this.flush = flush.equals("flush");
  }

  public Object apply(Object writeClient) {
    SparkRDDWriteClient client = (SparkRDDWriteClient) writeClient;
    Fenced fenced = new Fenced(client.getEngineContext(), client.getConfig(), claimPath, claim, flush);
    try {
      return fenced.run(service, instant);
    } catch (IOException error) {
      throw new IllegalStateException("cannot read the timeline, or flush what was written: " + error.getMessage(), error);
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

    public String run(String service, String instant) throws IOException {
      // File systems keep times in steps of up to two seconds.
      long began = System.currentTimeMillis() - 2000;
      boolean clusters = service.equals("clustering");
      boolean pending;
      // Inside the lock: an earlier claimant that is in its commit ends it first, and any other no longer gets into one.
      txnManager.beginStateChange(Option.empty(), Option.empty());
      try {
        requireClaim();
        HoodieActiveTimeline timeline = meta().getActiveTimeline();
        pending = (clusters ? timeline.filterPendingClusteringTimeline() : timeline.filterPendingCompactionTimeline())
            .containsInstant(instant);
        if (pending && clusters) {
          if (!heartbeatClient.isHeartbeatExpired(instant)) {
            throw new IllegalStateException("clustering " + instant + " is running in another process: its heartbeat beats");
          }
          heartbeatClient.start(instant);
        }
      } finally {
        txnManager.endStateChange(Option.empty());
      }
      if (pending && clusters) {
        try {
          cluster(instant, true);
        } finally {
          // Whatever happened, the next try need not wait until the lease runs out.
          heartbeatClient.stop(instant);
        }
      } else if (pending) {
        // With this table's concurrency mode Hudi keeps a heartbeat meanwhile, and refuses if there is one already.
        compact(instant, true);
      }
      if (flush) {
        // Also what an earlier call has committed, which may have died before it could. The completed instant last: one that a
        // power cut leaves empty stops readers.
        flushChanges(new File(basePath, ".hoodie/metadata"), pending ? began : 0);
        flushChanges(new File(basePath, ".hoodie/timeline"), pending ? began : 0);
      }
      return figures(instant);
    }

    protected void completeCompaction(HoodieCommitMetadata metadata, HoodieTable table, String instant, List ofMetadataTable) {
      flushFiles(metadata);
      super.completeCompaction(metadata, table, instant, ofMetadataTable);
    }

    // What Hudi calls between the writing of a clustering's files and its commit, outside the lock.
    protected void runPrecommitValidationForClustering(HoodieWriteMetadata written, HoodieTable table, String instant) {
      flushFiles((HoodieCommitMetadata) written.getCommitMetadata().get());
      super.runPrecommitValidationForClustering(written, table, instant);
    }

    // Called inside the lock, before anything is deleted or published.
    protected void finalizeWrite(HoodieTable table, String instant, List stats) {
      requireClaim();
      super.finalizeWrite(table, instant, stats);
    }

    protected void writeToMetadataTable(HoodieTable table, String instant, HoodieCommitMetadata metadata, List ofMetadataTable) {
      // The newest commit's columns are the table's, and a transaction may have added some since this service began.
      try {
        metadata.addMetadata(HoodieCommitMetadata.SCHEMA_KEY, new TableSchemaResolver(meta()).getTableSchema(false).toString());
      } catch (Exception error) {
        throw new IllegalStateException("cannot read the table's columns: " + error.getMessage(), error);
      }
      super.writeToMetadataTable(table, instant, metadata, ofMetadataTable);
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

    private void flushFiles(HoodieCommitMetadata metadata) {
      if (!flush) {
        return;
      }
      Set files = new HashSet();
      Iterator stats = metadata.getWriteStats().iterator();
      while (stats.hasNext()) {
        File file = new File(basePath, ((HoodieWriteStat) stats.next()).getPath());
        files.add(file);
        files.add(new File(file.getParentFile(), "." + file.getName() + ".crc"));
        files.add(file.getParentFile());
      }
      try {
        Iterator all = files.iterator();
        while (all.hasNext()) {
          // The checksum file need not exist.
          force((File) all.next());
        }
      } catch (IOException error) {
        throw new IllegalStateException("cannot flush the files that were written: " + error.getMessage(), error);
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
      throw new IllegalStateException("instant " + instant + " is neither pending nor completed: another writer removed it");
    }

    private static String figures(HoodieCommitMetadata commit) {
      long groups = 0;
      long replaced = 0;
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
      if (commit instanceof HoodieReplaceCommitMetadata) {
        Iterator partitions = ((HoodieReplaceCommitMetadata) commit).getPartitionToReplaceFileIds().values().iterator();
        while (partitions.hasNext()) {
          replaced += ((List) partitions.next()).size();
        }
      }
      return groups + "," + replaced + "," + logs + "," + rows + "," + logBytes + "," + bytes;
    }

    private HoodieTableMetaClient meta() {
      return HoodieTableMetaClient.builder().setConf(storageConf).setBasePath(basePath).build();
    }
  }
}
