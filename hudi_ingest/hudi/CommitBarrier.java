import org.apache.hudi.client.BaseHoodieClient;
import org.apache.hudi.client.transaction.TransactionManager;
import org.apache.hudi.common.util.Option;

/**
 * Acquires and releases Hudi's table lock, so that a commit that holds it has ended when this returns. One piece of Java,
 * because a lock held across calls from Python would stay held if Python died.
 */
public class CommitBarrier implements java.util.function.Consumer {
  public void accept(Object client) {
    TransactionManager manager = ((BaseHoodieClient) client).getTransactionManager();
    manager.beginStateChange(Option.empty(), Option.empty());
    manager.endStateChange(Option.empty());
  }
}
