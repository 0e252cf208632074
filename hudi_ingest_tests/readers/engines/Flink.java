import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/** Prints the rows of an Iceberg table in a catalog of SQLite, each as a line of JSON that rows.py reads: `FILE TABLE`. */
public final class Flink {
    public static void main(String[] arguments) throws Exception {
        TableEnvironment flink = TableEnvironment.create(EnvironmentSettings.inBatchMode());
        flink.executeSql(
                "create catalog hudi_ingest with ('type' = 'iceberg', 'catalog-impl' = 'org.apache.iceberg.jdbc.JdbcCatalog', 'jdbc.schema-version' = 'V1', "
                        + "'uri' = 'jdbc:sqlite:" + arguments[0] + "', 'warehouse' = 'file:///nowhere')");
        try (CloseableIterator<Row> rows = flink.executeSql("select * from hudi_ingest.`default`.`" + arguments[1] + "`").collect()) {
            while (rows.hasNext()) {
                System.out.println("row " + json(rows.next()));
            }
        }
    }

    private static String json(Object value) {
        if (value == null || value instanceof Boolean || value instanceof Integer || value instanceof Long) {
            return String.valueOf(value);
        }
        if (value instanceof Float || value instanceof Double) {
            return tagged("float", value.toString());
        }
        if (value instanceof BigDecimal number) {
            return tagged("decimal", number.toPlainString());
        }
        if (value instanceof LocalDate) {
            return tagged("date", value.toString());
        }
        if (value instanceof Instant) {
            return tagged("time", value.toString());
        }
        if (value instanceof byte[] bytes) {
            return tagged("bytes", HexFormat.of().formatHex(bytes));
        }
        if (value instanceof Object[] elements) {
            List<String> parts = new ArrayList<>();
            for (Object element : elements) {
                parts.add(json(element));
            }
            return parts.toString();
        }
        if (value instanceof Map<?, ?> map) {
            Map<String, String> parts = new TreeMap<>();
            map.forEach((key, each) -> parts.put(json(key), "[" + json(key) + ", " + json(each) + "]"));
            return "{\"map\": " + parts.values() + "}";
        }
        if (value instanceof Row row) {
            List<String> parts = new ArrayList<>();
            for (String name : row.getFieldNames(true)) {
                parts.add(json(name) + ": " + json(row.getField(name)));
            }
            return "{" + String.join(", ", parts) + "}";
        }
        if (value instanceof String text) {
            StringBuilder quoted = new StringBuilder("\"");
            text.chars().forEach(sign -> quoted.append(String.format("\\u%04x", sign)));
            return quoted.append('"').toString();
        }
        throw new IllegalArgumentException(value.getClass() + " is of no type that the tables have");
    }

    private static String tagged(String kind, String text) {
        return "{" + json(kind) + ": " + json(text) + "}";
    }
}
