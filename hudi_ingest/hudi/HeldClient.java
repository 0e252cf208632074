import java.util.HashMap;
import java.util.function.Consumer;
import org.apache.hudi.client.SparkRDDWriteClient;
import org.apache.hudi.common.engine.HoodieEngineContext;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.hudi.table.HoodieTable;

/**
 * Hudi's Spark client for one commit of a table on S3. It begins the `hold` (see HudiIngestS3Files.java) with the first thing that
 * Hudi does inside its lock, so that Hudi's look for conflicts, the guard and the commit read the store once.
 *
 * The table that Hudi opens before it takes the lock is of the caller's meta client, which was as new as any when the commit began:
 * whatever is decided by what others have done is read again inside the lock. Compiled by Janino: raw types, no lambdas.
 */
public class HeldClient extends SparkRDDWriteClient {
  private final HoodieTableMetaClient meta;
  private final Consumer hold;
  private boolean isOpened = false;

  public HeldClient(Object context, Object config, Object meta, Object hold) {
    super((HoodieEngineContext) context, (HoodieWriteConfig) config);
    this.meta = (HoodieTableMetaClient) meta;
    this.hold = (Consumer) hold;
  }

  protected HoodieTable createTable(HoodieWriteConfig config) {
    if (isOpened) {
      return super.createTable(config);
    }
    isOpened = true;
    return createTable(config, meta);
  }

  protected void preCommit(HoodieCommitMetadata metadata) {
    hold.accept(new HashMap());
    super.preCommit(metadata);
  }
}
