import java.net.InetSocketAddress;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * Hive's metastore on one address. Its own main class can only listen on all of the machine's addresses.
 * Compiled by Janino: raw types, no lambdas.
 */
public class Metastore {
  public static void main(String[] arguments) throws Exception {
    HiveConf conf = new HiveConf(Metastore.class);
    // Opens the database, and creates its tables the first time, before anyone can connect.
    TSetIpAddressProcessor processor =
        new TSetIpAddressProcessor(HiveMetaStore.newRetryingHMSHandler("metastore", conf, true));
    TServerSocket socket = new TServerSocket(new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1])));
    TThreadPoolServer.Args settings = new TThreadPoolServer.Args(socket);
    settings.processor(processor);
    new TThreadPoolServer(settings).serve();
  }
}
