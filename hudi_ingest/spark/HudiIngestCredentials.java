import com.amazonaws.auth.AWSCredentials;
import com.amazonaws.auth.AWSCredentialsProvider;
import com.amazonaws.auth.BasicAWSCredentials;
import com.amazonaws.auth.BasicSessionCredentials;
import com.amazonaws.auth.profile.ProfileCredentialsProvider;
import com.amazonaws.SdkClientException;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.hadoop.conf.Configuration;

/**
 * Reads the credentials that a pipeline file refers to, in the JVM that uses them and at each request: Hadoop's configuration,
 * which Hudi sends to executors, holds only `env:NAME`, `file:PATH` or a profile's name. Compiled by Janino.
 */
public class HudiIngestCredentials implements AWSCredentialsProvider {
  private final String accessKey;
  private final String secretKey;
  private final String sessionToken;
  private final ProfileCredentialsProvider profile;

  public HudiIngestCredentials(URI bucket, Configuration settings) {
    this.accessKey = settings.get("fs.s3a.hudi-ingest.access.key");
    this.secretKey = settings.get("fs.s3a.hudi-ingest.secret.key");
    this.sessionToken = settings.get("fs.s3a.hudi-ingest.session.token");
    String name = settings.get("fs.s3a.hudi-ingest.profile");
    this.profile = name == null ? null : new ProfileCredentialsProvider(name);
  }

  public AWSCredentials getCredentials() {
    if (profile != null) {
      try {
        return profile.getCredentials();
      } catch (IllegalArgumentException error) {
        throw new SdkClientException("hudi-ingest credentials: " + error.getMessage() + " where Spark runs");
      }
    }
    String key = resolve(accessKey);
    String secret = resolve(secretKey);
    return sessionToken == null
        ? (AWSCredentials) new BasicAWSCredentials(key, secret)
        : (AWSCredentials) new BasicSessionCredentials(key, secret, resolve(sessionToken));
  }

  public void refresh() {
    if (profile != null) {
      profile.refresh();
    }
  }

  private static String resolve(String reference) {
    String value;
    String place = reference.substring(reference.indexOf(':') + 1);
    if (reference.startsWith("env:")) {
      value = System.getenv(place);
      place = "environment variable " + place;
    } else {
      try {
        value = new String(Files.readAllBytes(Paths.get(place, new String[0])), StandardCharsets.UTF_8);
      } catch (IOException error) {
        throw new SdkClientException("hudi-ingest credentials: file " + place + " cannot be read where Spark runs");
      }
      if (value.endsWith("\n")) {
        value = value.substring(0, value.length() - 1);
      }
      if (value.endsWith("\r")) {
        value = value.substring(0, value.length() - 1);
      }
      place = "file " + place;
    }
    if (value == null || value.isEmpty()) {
      throw new SdkClientException("hudi-ingest credentials: " + place + " is not set or empty where Spark runs");
    }
    return value;
  }
}
