import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.hudi.client.common.HoodieSparkEngineContext;
import org.apache.hudi.common.function.SerializableConsumer;
import org.apache.hudi.common.function.SerializableFunction;
import org.apache.hudi.common.function.SerializablePairFunction;
import org.apache.hudi.common.util.collection.Pair;
import org.apache.hudi.exception.HoodieException;
import org.apache.spark.api.java.JavaSparkContext;

/**
 * Hudi's Spark engine, which does itself what has only a few items, like listing the folders of a transaction's markers: a Spark
 * job for them takes longer than they do. Compiled by Janino: raw types, no lambdas.
 */
public class FewInDriver extends HoodieSparkEngineContext {
  private final int few;

  public FewInDriver(JavaSparkContext context, Integer few) {
    super(context);
    this.few = few.intValue();
  }

  public List map(List items, SerializableFunction function, int parallelism) {
    if (items.size() > few) {
      return super.map(items, function, parallelism);
    }
    List results = new ArrayList(items.size());
    for (Iterator rest = items.iterator(); rest.hasNext();) {
      results.add(result(function, rest.next()));
    }
    return results;
  }

  public List flatMap(List items, SerializableFunction function, int parallelism) {
    if (items.size() > few) {
      return super.flatMap(items, function, parallelism);
    }
    List results = new ArrayList();
    for (Iterator rest = items.iterator(); rest.hasNext();) {
      results.addAll((List) ((Stream) result(function, rest.next())).collect(Collectors.toList()));
    }
    return results;
  }

  public void foreach(List items, SerializableConsumer consumer, int parallelism) {
    if (items.size() > few) {
      super.foreach(items, consumer, parallelism);
      return;
    }
    for (Iterator rest = items.iterator(); rest.hasNext();) {
      try {
        consumer.accept(rest.next());
      } catch (Exception error) {
        throw unchecked(error);
      }
    }
  }

  public Map mapToPair(List items, SerializablePairFunction function, Integer parallelism) {
    if (items.size() > few) {
      return super.mapToPair(items, function, parallelism);
    }
    Map results = new HashMap();
    for (Iterator rest = items.iterator(); rest.hasNext();) {
      try {
        Pair result = (Pair) function.call(rest.next());
        results.put(result.getLeft(), result.getRight());
      } catch (Exception error) {
        throw unchecked(error);
      }
    }
    return results;
  }

  private static Object result(SerializableFunction function, Object item) {
    try {
      return function.apply(item);
    } catch (Exception error) {
      throw unchecked(error);
    }
  }

  private static RuntimeException unchecked(Exception error) {
    return error instanceof RuntimeException ? (RuntimeException) error : new HoodieException(error.getMessage(), error);
  }
}
