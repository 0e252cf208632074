import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import org.apache.hudi.client.BaseHoodieWriteClient;
import org.apache.hudi.common.util.Option;

/**
 * Commits an instant, and renews its heartbeat meanwhile: otherwise it could expire during the commit, and a waiting cleaner would
 * roll the completed commit back. One piece of Java, because the client's timer would renew it for as long as the JVM lives if
 * Python died meanwhile. `hold`: see HudiIngestS3Files.java; null for a table that is not on S3. It begins with the guard, which
 * Hudi calls inside its lock, and which therefore sees the store as it is. Compiled by Janino: raw types, no lambdas.
 */
public class LeasedCommit implements Consumer {
  private final String instant;
  private final String action;
  private final List stats;
  private final Map metadata;
  private final Map replaced;
  private final BiConsumer guard;
  private final Consumer hold;

  public LeasedCommit(Object instant, Object action, Object stats, Object metadata, Object replaced, Object guard, Object hold) {
    this.instant = (String) instant;
    this.action = (String) action;
    this.stats = (List) stats;
    this.metadata = (Map) metadata;
    this.replaced = (Map) replaced;
    this.guard = (BiConsumer) guard;
    this.hold = (Consumer) hold;
  }

  public void accept(Object writeClient) {
    BaseHoodieWriteClient client = (BaseHoodieWriteClient) writeClient;
    client.getHeartbeatClient().start(instant);
    try {
      client.commitStats(instant, stats, Option.of(metadata), action, replaced, Option.of(hold == null ? guard : heldFromGuard()));
    } finally {
      if (hold != null) {
        hold.accept(null);
      }
      client.getHeartbeatClient().stopHeartbeatTimers();
    }
  }

  private BiConsumer heldFromGuard() {
    return new BiConsumer() {
      public void accept(Object metaClient, Object commit) {
        hold.accept(new HashMap());
        guard.accept(metaClient, commit);
      }
    };
  }
}
