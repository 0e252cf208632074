import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.hudi.client.BaseHoodieWriteClient;
import org.apache.hudi.common.heartbeat.HoodieHeartbeatUtils;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.util.Option;

/**
 * Commits an instant, and renews its heartbeat meanwhile: otherwise it could expire during the commit, and a waiting cleaner would
 * roll the completed commit back. Returns "expired", and does nothing, if the heartbeat is older than `renewable` milliseconds or gone:
 * a cleaner may have taken the instant for dead already. One piece of Java, because the client's timer would renew it for as long as the JVM lives if
 * Python died meanwhile. `hold`: that of a HeldClient, which ends here; null for any other client. With it, the commit's metadata
 * is returned as Hudi wrote it, in JSON, else "". Compiled by Janino: raw types, no lambdas.
 */
public class LeasedCommit implements Function {
  private final String instant;
  private final String action;
  private final List stats;
  private final Map metadata;
  private final Map replaced;
  private final BiConsumer guard;
  private final Consumer hold;
  private final HoodieTableMetaClient meta;
  private final long renewable;
  private String written = "";

  public LeasedCommit(Object instant, Object action, Object stats, Object metadata, Object replaced, Object guard, Object hold,
      Object meta, Object renewable) {
    this.instant = (String) instant;
    this.action = (String) action;
    this.stats = (List) stats;
    this.metadata = (Map) metadata;
    this.replaced = (Map) replaced;
    this.guard = (BiConsumer) guard;
    this.hold = (Consumer) hold;
    this.meta = (HoodieTableMetaClient) meta;
    this.renewable = Long.parseLong((String) renewable);
  }

  public Object apply(Object writeClient) {
    BaseHoodieWriteClient client = (BaseHoodieWriteClient) writeClient;
    try {
      long last = HoodieHeartbeatUtils.getLastHeartbeatTime(meta.getStorage(), meta.getBasePath().toString(), instant).longValue();
      if (System.currentTimeMillis() - last > renewable) {
        return "expired";
      }
      client.getHeartbeatClient().start(instant);
      client.commitStats(instant, stats, Option.of(metadata), action, replaced, Option.of(hold == null ? guard : noting()));
      return written;
    } catch (java.io.IOException error) {
      throw new IllegalStateException("cannot read the heartbeat of instant " + instant + ": " + error.getMessage(), error);
    } finally {
      if (hold != null) {
        hold.accept(null);
      }
      client.getHeartbeatClient().stopHeartbeatTimers();
    }
  }

  /** The guard, which Hudi calls with the metadata that it then writes. */
  private BiConsumer noting() {
    return new BiConsumer() {
      public void accept(Object metaClient, Object commit) {
        guard.accept(metaClient, commit);
        try {
          // Now: after the commit Hudi adds to it what it does not write.
          written = ((HoodieCommitMetadata) commit).toJsonString();
        } catch (java.io.IOException error) {
          throw new IllegalStateException("cannot write the commit's metadata as JSON: " + error.getMessage(), error);
        }
      }
    };
  }
}
