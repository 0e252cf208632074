import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.InputStream;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hudi.avro.model.HoodieRollbackPlan;
import org.apache.hudi.common.config.HoodieMetadataConfig;
import org.apache.hudi.common.engine.HoodieLocalEngineContext;
import org.apache.hudi.common.model.HoodieBaseFile;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.model.HoodieFileGroupId;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.common.table.timeline.TimelineUtils;
import org.apache.hudi.common.table.view.FileSystemViewManager;
import org.apache.hudi.common.table.view.HoodieTableFileSystemView;
import org.apache.hudi.common.util.ClusteringUtils;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.io.util.FileIOUtils;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.table.action.rollback.RollbackUtils;

/**
 * Hudi runs this inside its table lock, before it writes any part of the commit. It throws unless the table is in our
 * transaction's epoch, the instant is still open and no rollback of it is planned, no completed instant carries our transaction, the committed
 * checkpoint is the one the plan started from, and each file to be replaced is the latest of its file group, with no other
 * writer active. When a table is taken over, it also throws if another writer has committed since, or is active; for a keyed
 * table, if another writer has committed since the file groups were looked up, or a compaction is ahead of the driver's clock.
 * Compiled by Janino: raw types, no lambdas.
 */
public class CommitGuard implements java.util.function.BiConsumer {
  private final String epochPath;
  private final String epoch;
  private final String instant;
  private final String checkpointKey;
  private final String expectedCheckpoint;
  private final String transactionKey;
  private final String transactionId;
  private final String replaced;
  private final String seen;
  private final String read;
  private final boolean keyed;

  public CommitGuard(String epochPath, String epoch, String instant, String checkpointKey, String expectedCheckpoint,
      String transactionKey, String transactionId, String replaced, String seen, String read, String keyed) {
    this.epochPath = epochPath;
    this.epoch = epoch;
    this.instant = instant;
    this.checkpointKey = checkpointKey;
    this.expectedCheckpoint = expectedCheckpoint;
    this.transactionKey = transactionKey;
    this.transactionId = transactionId;
    this.replaced = replaced;
    this.seen = seen;
    this.read = read;
    this.keyed = keyed.equals("true");
  }

  public void accept(Object metaClient, Object metadata) {
    try {
      // Reload: the meta client passed in was created before the lock was taken.
      HoodieTableMetaClient fresh = HoodieTableMetaClient.reload((HoodieTableMetaClient) metaClient);
      requireEpoch(fresh);
      requireOpen(fresh);
      requireNoRollback(fresh);
      requireCheckpoint(fresh);
      if (keyed) {
        requireClock(fresh);
      }
      if (!replaced.isEmpty()) {
        requireNoOtherWriter(fresh, "may have read files that are to be replaced");
        requireLive(fresh);
      }
      if (!seen.isEmpty()) {
        requireNoOtherWriter(fresh, "may ingest the records that this transaction has read");
        requireSeen(fresh);
      }
    } catch (java.io.IOException error) {
      throw new IllegalStateException("hudi-ingest guard: cannot read the timeline: " + error.getMessage(), error);
    }
  }

  private void requireEpoch(HoodieTableMetaClient fresh) throws java.io.IOException {
    InputStream stream = fresh.getStorage().open(new StoragePath(epochPath));
    try {
      String current = new String(FileIOUtils.readAsByteArray(stream), "UTF-8");
      if (!current.equals(epoch)) {
        throw new IllegalStateException("hudi-ingest guard: the table is in epoch " + current + ", but this commit is of epoch "
            + epoch + ", which is over");
      }
    } finally {
      stream.close();
    }
  }

  private void requireOpen(HoodieTableMetaClient fresh) throws java.io.IOException {
    boolean open = false;
    Iterator instants = fresh.getActiveTimeline().getInstants().iterator();
    while (instants.hasNext()) {
      HoodieInstant candidate = (HoodieInstant) instants.next();
      if (candidate.requestedTime().equals(instant)) {
        if (candidate.isCompleted()) {
          throw new IllegalStateException("hudi-ingest guard: instant " + instant + " is already completed");
        }
        open = true;
      }
    }
    if (!open) {
      throw new IllegalStateException("hudi-ingest guard: instant " + instant + " was rolled back");
    }
  }

  /** Another writer's rollback deletes the instant's files, and last the instant, after it has left the lock in which it was planned. */
  private void requireNoRollback(HoodieTableMetaClient fresh) throws java.io.IOException {
    Iterator rollbacks = fresh.getActiveTimeline().filterPendingRollbackTimeline().getInstants().iterator();
    while (rollbacks.hasNext()) {
      HoodieInstant rollback = (HoodieInstant) rollbacks.next();
      HoodieRollbackPlan plan = RollbackUtils.getRollbackPlan(fresh, rollback);
      if (plan.getInstantToRollback().getCommitTime().equals(instant)) {
        throw new IllegalStateException("hudi-ingest guard: instant " + instant + " is being rolled back by "
            + rollback.requestedTime());
      }
    }
  }

  private void requireCheckpoint(HoodieTableMetaClient fresh) throws java.io.IOException {
    ObjectMapper json = new ObjectMapper();
    HoodieTimeline done = fresh.getActiveTimeline().getCommitsTimeline().filterCompletedInstants();
    // A completed instant never changes, so those that the coordinator has read need not be read again, as long as all of them
    // are still there: the carrier of the expected checkpoint may have been rolled back since.
    Set known = new HashSet(Arrays.asList(read.split(",")));
    Set present = new HashSet();
    Iterator all = done.getInstants().iterator();
    while (all.hasNext()) {
      present.add(((HoodieInstant) all.next()).requestedTime());
    }
    String newest = "";
    long sequence = -1;
    if (!present.containsAll(known)) {
      known.clear();
    } else if (!expectedCheckpoint.isEmpty()) {
      newest = expectedCheckpoint;
      sequence = json.readTree(expectedCheckpoint).get("sequence").asLong();
    }
    Iterator instants = done.getInstants().iterator();
    while (instants.hasNext()) {
      HoodieInstant candidate = (HoodieInstant) instants.next();
      if (known.contains(candidate.requestedTime())) {
        continue;
      }
      HoodieCommitMetadata commit = TimelineUtils.getCommitMetadata(candidate, done);
      String transaction = commit.getMetadata(transactionKey);
      if (transaction != null && json.readTree(transaction).get("transaction").asText().equals(transactionId)) {
        throw new IllegalStateException(
            "hudi-ingest guard: instant " + candidate.requestedTime() + " has already published " + transactionId);
      }
      if (keyed && transaction == null && !candidate.getAction().equals(HoodieTimeline.COMMIT_ACTION)) {
        // A compaction, whose action it is, keeps the file groups. Anybody else may have replaced or made some.
        throw new IllegalStateException("hudi-ingest guard: another writer's " + candidate.getAction() + " "
            + candidate.requestedTime() + " was completed while file groups were looked up");
      }
      String checkpoint = commit.getMetadata(checkpointKey);
      if (checkpoint != null) {
        JsonNode node = json.readTree(checkpoint);
        // Other writers carry older checkpoints forward, so the greatest sequence is the committed one.
        if (node.get("sequence").asLong() > sequence) {
          sequence = node.get("sequence").asLong();
          newest = checkpoint;
        }
      }
    }
    if (!newest.equals(expectedCheckpoint)) {
      throw new IllegalStateException("hudi-ingest guard: the committed checkpoint is "
          + (newest.isEmpty() ? "none" : newest) + ", but this transaction starts from "
          + (expectedCheckpoint.isEmpty() ? "none" : expectedCheckpoint));
    }
  }

  /** A log file belongs to the newest base file whose instant is before its commit. So a compaction that is ahead of this driver's
   *  clock, planned by another driver after this one has waited for its own, would be without our rows, and hide them. Hudi gives the commit
   *  a later time than the one that it issues here, also if the clock is set back meanwhile. */
  private void requireClock(HoodieTableMetaClient fresh) {
    String now = fresh.createNewInstantTime(false);
    Iterator instants = fresh.getActiveTimeline().getInstants().iterator();
    while (instants.hasNext()) {
      HoodieInstant candidate = (HoodieInstant) instants.next();
      String action = candidate.getAction();
      boolean compaction = action.equals(HoodieTimeline.COMPACTION_ACTION) || action.equals(HoodieTimeline.COMMIT_ACTION);
      if (compaction && candidate.requestedTime().compareTo(now) >= 0) {
        throw new IllegalStateException("hudi-ingest guard: compaction " + candidate.requestedTime()
            + " was planned by a driver whose clock is ahead of this one's, " + now);
      }
    }
  }

  /** Another writer that has read a file that we replace would publish changes to rows that are no longer visible. */
  private void requireNoOtherWriter(HoodieTableMetaClient fresh, String why) {
    Iterator instants = fresh.getActiveTimeline().getCommitsTimeline().filterInflightsAndRequested().getInstants().iterator();
    while (instants.hasNext()) {
      HoodieInstant candidate = (HoodieInstant) instants.next();
      boolean clustering = ClusteringUtils.isClusteringInstant(fresh.getActiveTimeline(), candidate, fresh.getInstantGenerator());
      if (!candidate.requestedTime().equals(instant) && !clustering) {
        throw new IllegalStateException("hudi-ingest guard: another writer's " + candidate.getAction() + " " + candidate.requestedTime()
            + " is still open, and " + why + ". Wait until it has ended");
      }
    }
  }

  /** A table is taken over at the commits that the plan has seen, so there must be no newer ones. */
  private void requireSeen(HoodieTableMetaClient fresh) {
    List known = Arrays.asList(seen.split(","));
    Iterator instants = fresh.getActiveTimeline().getCommitsTimeline().filterCompletedInstants().getInstants().iterator();
    while (instants.hasNext()) {
      HoodieInstant candidate = (HoodieInstant) instants.next();
      if (!known.contains(candidate.requestedTime())) {
        throw new IllegalStateException("hudi-ingest guard: another writer's " + candidate.getAction() + " " + candidate.requestedTime()
            + " was completed while the table was being taken over");
      }
    }
  }

  private void requireLive(HoodieTableMetaClient fresh) {
    Map clustered = ClusteringUtils.getAllFileGroupsInPendingClusteringPlans(fresh);
    HoodieMetadataConfig listing = HoodieMetadataConfig.newBuilder().enable(false).build();
    HoodieTableFileSystemView view = FileSystemViewManager.createInMemoryFileSystemView(
        new HoodieLocalEngineContext(fresh.getStorageConf()), fresh, listing);
    try {
      String[] lines = replaced.split("\n");
      for (int index = 0; index < lines.length; index++) {
        String[] file = lines[index].split("\t");
        if (clustered.containsKey(new HoodieFileGroupId(file[0], file[1]))) {
          throw new IllegalStateException("hudi-ingest guard: a clustering of file " + file[2] + " of partition '" + file[0]
              + "', which is to be replaced, is pending. Wait until it has ended");
        }
        Option latest = view.getLatestBaseFile(file[0], file[1]);
        String name = latest.isPresent() ? ((HoodieBaseFile) latest.get()).getFileName() : "none";
        if (!name.equals(file[2])) {
          throw new IllegalStateException("hudi-ingest guard: file " + file[2] + " of partition '" + file[0]
              + "', which is to be replaced, is no longer in the table (now: " + name + "): another writer changed its rows");
        }
      }
    } finally {
      view.close();
    }
  }
}
