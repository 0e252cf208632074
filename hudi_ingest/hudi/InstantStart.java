import java.util.function.Function;
import org.apache.hudi.client.BaseHoodieWriteClient;
import org.apache.hudi.common.table.HoodieTableMetaClient;

/**
 * Starts a commit and returns its instant, with a heartbeat that is written once. One piece of Java, because the client's timer
 * would renew it for as long as the JVM lives if Python died meanwhile. Compiled by Janino: raw types, no lambdas.
 */
public class InstantStart implements Function {
  private final String action;
  private final HoodieTableMetaClient meta;

  public InstantStart(Object action, Object meta) {
    this.action = (String) action;
    this.meta = (HoodieTableMetaClient) meta;
  }

  public Object apply(Object writeClient) {
    BaseHoodieWriteClient client = (BaseHoodieWriteClient) writeClient;
    try {
      return client.startCommit(action, meta);
    } finally {
      client.getHeartbeatClient().stopHeartbeatTimers();
    }
  }
}
