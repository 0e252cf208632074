import com.amazonaws.services.s3.AmazonS3;
import com.amazonaws.services.s3.model.AmazonS3Exception;
import com.amazonaws.services.s3.model.DeleteObjectsRequest;
import com.amazonaws.services.s3.model.ListObjectsV2Request;
import com.amazonaws.services.s3.model.ListObjectsV2Result;
import com.amazonaws.services.s3.model.S3ObjectSummary;
import com.amazonaws.util.IOUtils;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.fs.s3a.WriteOperationHelper;
import org.apache.hadoop.util.Progressable;
import org.apache.hadoop.util.functional.CallableRaisingIOE;
import org.apache.hadoop.util.functional.RemoteIterators;

/**
 * Hadoop's S3 client, except for three things that it does for Hudi.
 *
 * A stream of a log file, of a metadata table or a keyed one, has no connection between two reads. Hudi 1.2 leaves such streams
 * open, one for each log file that a lookup, a compaction or a query reads, and each kept a connection of the client's pool: after
 * some ten table services, or one compaction of a hundred log files, a driver had none left.
 *
 * What Hudi keeps whole in small objects below .hoodie takes one request where Hadoop makes two to seven to find out whether a
 * path is a folder, which these never are, and to keep up empty objects for folders, which nobody asks for.
 *
 * Outside a Hold nothing is remembered between two calls, so each sees the store as it is: fences read through here, too.
 *
 * Compiled by Janino: raw types, no lambdas.
 */
public class HudiIngestS3Files extends S3AFileSystem {
  private static final String HOODIE = "/.hoodie/";
  private static final int MOST_DELETED = 1000;
  private static final ThreadLocal HELD = new ThreadLocal();
  /** Key of the one folder of markers that is still held after Hudi has released its lock. */
  private static final String RELEASED = "";
  private AmazonS3 client;

  /**
   * Lets this thread read a table's hoodie.properties, its timelines and its markers once, from `accept` of an empty map until
   * `accept` of null. For a thread that holds Hudi's lock of the table, without which no writer changes the first two; its own
   * changes are added, or end the hold. When the heartbeat is deleted, the first change after Hudi has released its lock, it ends
   * for all but the instant's own markers, which are listed anew, once, and then deleted: the instant is completed by now, and a
   * marker of a late task stays behind whether it comes before a second listing or after it.
   *
   * Never held are the epoch, and whether a file is on the data table's timeline: a process that stood still must find that its
   * instant has been rolled back.
   */
  public static class Hold implements Consumer {
    public void accept(Object kept) {
      HELD.set(kept);
    }
  }

  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    String own = belowHoodie(path);
    if (own.equals("hoodie.properties") || own.equals("hudi_ingest/epoch") || isInstant(own)) {
      boolean isHeld = isLocked() && own.equals("hoodie.properties");
      Object content = isHeld ? held().get(pathToKey(path)) : null;
      if (content == null) {
        content = asked("read", path, null);
        if (isHeld) {
          held().put(pathToKey(path), content);
        }
      }
      return new FSDataInputStream(new Pages(this, path, null, (byte[]) content));
    }
    if (path.getName().indexOf(".log.") < 0) {
      return super.open(path, bufferSize);
    }
    return new FSDataInputStream(new Pages(this, path, getFileStatus(path), new byte[0]));
  }

  public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int bufferSize, short replication,
      long blockSize, Progressable progress) throws IOException {
    String own = belowHoodie(path);
    if (!isInstant(own) && !own.startsWith(".heartbeat/") && !isMarker(own)) {
      endHold(own);
      return super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress);
    }
    // A marker is empty and its name has the try of its task, so nothing is lost if one is there, for which Hudi has just looked.
    if (!overwrite && !isMarker(own) && exists(path)) {
      throw new FileAlreadyExistsException(path + " already exists");
    }
    return new FSDataOutputStream(new Whole(this, path), null);
  }

  public boolean exists(Path path) throws IOException {
    String own = belowHoodie(path);
    if (isMarkersOfInstant(own)) {
      return isHeldMarkers(path) ? !markers(pathToKey(path)).isEmpty() : asked("any", path, null) != null;
    }
    boolean isOfMetadataTable = path.toString().indexOf("/.hoodie/metadata/.hoodie/") > 0;
    Map timeline = isInstant(own) && isOfMetadataTable ? heldTimeline(path) : null;
    if (timeline != null) {
      return timeline.containsKey(path.getName());
    }
    boolean isFile = isInstant(own) || isMarker(own) || path.getName().indexOf(".log.") >= 0;
    return isFile ? asked("find", path, null) != null : super.exists(path);
  }

  public FileStatus[] listStatus(Path path) throws IOException {
    String own = belowHoodie(path);
    Map found = null;
    if (isLocked() && own.equals("timeline")) {
      found = (Map) held().get(pathToKey(path));
      if (found == null) {
        found = new TreeMap();
        FileStatus[] files = super.listStatus(path);
        for (int index = 0; index < files.length; index++) {
          found.put(files[index].getPath().getName(), files[index]);
        }
        held().put(pathToKey(path), found);
      }
    } else if (own.startsWith(".temp/") && isHeldMarkers(path)) {
      found = entries(pathToKey(path) + "/");
    }
    return found == null ? super.listStatus(path) : (FileStatus[]) found.values().toArray(new FileStatus[0]);
  }

  public RemoteIterator listFiles(Path path, boolean recursive) throws IOException {
    if (!recursive || !belowHoodie(path).startsWith(".temp/") || !isHeldMarkers(path)) {
      return super.listFiles(path, recursive);
    }
    String prefix = pathToKey(path) + "/";
    List found = new ArrayList();
    for (Iterator rest = markersAround(prefix).iterator(); rest.hasNext();) {
      String key = ((DeleteObjectsRequest.KeyVersion) rest.next()).getKey();
      if (key.startsWith(prefix) && !key.endsWith("/")) {
        found.add(new LocatedFileStatus(new FileStatus(0, false, 1, 0, 0, keyToQualifiedPath(key)), new BlockLocation[0]));
      }
    }
    return RemoteIterators.remoteIteratorFromIterator(found.iterator());
  }

  public boolean delete(Path path, boolean recursive) throws IOException {
    String own = belowHoodie(path);
    if (recursive && isBelowMarkersOfInstant(own)) {
      // Hudi deletes all that is in an instant's folder of markers before that folder, whose deletion takes everything at once.
      return true;
    }
    if (own.startsWith(".heartbeat/") || isMarker(own)) {
      release(own, path);
      asked("delete", path, null);
      return true;
    }
    if (!recursive || !isMarkersOfInstant(own)) {
      endHold(own);
      return super.delete(path, recursive);
    }
    boolean isReleased = HELD.get() != null && !isLocked() && isHeldMarkers(path);
    List keys = isReleased ? markers(pathToKey(path)) : (List) asked("list", path, null);
    for (int first = 0; first < keys.size(); first += MOST_DELETED) {
      asked("delete all", path, keys.subList(first, Math.min(keys.size(), first + MOST_DELETED)));
    }
    if (HELD.get() != null) {
      held().remove(pathToKey(path));
    }
    return true;
  }

  public boolean rename(Path from, Path to) throws IOException {
    endHold(belowHoodie(to));
    return super.rename(from, to);
  }

  private static Map held() {
    return (Map) HELD.get();
  }

  /** Ends this thread's hold before it changes what may be held, below the .hoodie of a table. */
  private static void endHold(String own) {
    if (!own.isEmpty()) {
      HELD.remove();
    }
  }

  /** Ends the hold, except for the markers of the instant whose heartbeat is deleted. */
  private void release(String own, Path path) {
    boolean wasLocked = isLocked();
    endHold(own);
    if (wasLocked && own.startsWith(".heartbeat/")) {
      Map markers = new TreeMap();
      markers.put(RELEASED, pathToKey(new Path(path.getParent().getParent(), ".temp/" + path.getName())));
      HELD.set(markers);
    }
  }

  /** Whether this thread has a hold, and has Hudi's lock as well. */
  private static boolean isLocked() {
    return HELD.get() != null && !held().containsKey(RELEASED);
  }

  private boolean isHeldMarkers(Path path) {
    if (HELD.get() == null || isLocked()) {
      return HELD.get() != null;
    }
    String key = pathToKey(path);
    return key.equals(held().get(RELEASED)) || key.startsWith(held().get(RELEASED) + "/");
  }

  private Map heldTimeline(Path path) {
    return !isLocked() ? null : (Map) held().get(pathToKey(path.getParent()));
  }

  /** The keys of all objects in an instant's folder of markers. */
  private List markers(String folder) throws IOException {
    List keys = (List) held().get(folder);
    if (keys == null) {
      keys = (List) asked("list", keyToQualifiedPath(folder), null);
      held().put(folder, keys);
    }
    return keys;
  }

  /** The same of the instant whose markers have keys with this prefix. */
  private List markersAround(String prefix) throws IOException {
    int instant = prefix.lastIndexOf("/.temp/") + "/.temp/".length();
    return markers(prefix.substring(0, prefix.indexOf('/', instant)));
  }

  /** What is directly in a folder of markers, by name. */
  private Map entries(String prefix) throws IOException {
    Map entries = new TreeMap();
    for (Iterator rest = markersAround(prefix).iterator(); rest.hasNext();) {
      String key = ((DeleteObjectsRequest.KeyVersion) rest.next()).getKey();
      if (key.startsWith(prefix) && key.length() > prefix.length()) {
        int end = key.indexOf('/', prefix.length());
        String entry = end < 0 ? key : key.substring(0, end);
        entries.put(entry, new FileStatus(0, end > 0, 1, 0, 0, keyToQualifiedPath(entry)));
      }
    }
    return entries;
  }

  /** Adds to what this thread holds an object that it has written. */
  void written(Path path, int size) throws IOException {
    Map timeline = heldTimeline(path);
    if (timeline != null && isInstant(belowHoodie(path))) {
      timeline.put(path.getName(), new FileStatus(size, false, 1, getDefaultBlockSize(path), System.currentTimeMillis(), qualify(path)));
    } else if (isMarker(belowHoodie(path))) {
      HELD.remove();
    }
  }

  /** The path below the .hoodie of its table, or of its metadata table; empty for any other. */
  private static String belowHoodie(Path path) {
    String text = path.toUri().getPath();
    int start = text.lastIndexOf(HOODIE);
    return start < 0 ? "" : text.substring(start + HOODIE.length());
  }

  private static boolean isInstant(String own) {
    return own.startsWith("timeline/") && own.indexOf('/', "timeline/".length()) < 0 && own.indexOf('.') > 0;
  }

  private static boolean isMarker(String own) {
    return own.startsWith(".temp/") && own.indexOf(".marker.") > 0;
  }

  private static boolean isMarkersOfInstant(String own) {
    return own.startsWith(".temp/") && own.indexOf('/', ".temp/".length()) < 0;
  }

  private static boolean isBelowMarkersOfInstant(String own) {
    return own.startsWith(".temp/") && own.indexOf('/', ".temp/".length()) > 0;
  }

  /** Asks the store, and repeats what fails as Hadoop does. */
  Object asked(String what, Path path, Object subject) throws IOException {
    WriteOperationHelper helper = getWriteOperationHelper();
    return helper.retry(what, path.toString(), true, new Request(s3(), helper, what, pathToKey(path), subject));
  }

  private synchronized AmazonS3 s3() {
    if (client == null) {
      // Of Hadoop's own, so that credentials, bounds and proxies are those of its settings.
      client = getAmazonS3ClientForTesting("hudi-ingest reads and writes small objects in one request");
    }
    return client;
  }

  /** One try of a request. */
  public static class Request implements CallableRaisingIOE {
    private final AmazonS3 client;
    private final WriteOperationHelper helper;
    private final String what;
    private final String key;
    private final Object subject;

    public Request(AmazonS3 client, WriteOperationHelper helper, String what, String key, Object subject) {
      this.client = client;
      this.helper = helper;
      this.what = what;
      this.key = key;
      this.subject = subject;
    }

    public Object apply() throws IOException {
      if (what.equals("read")) {
        return read();
      }
      if (what.equals("find")) {
        return found();
      }
      if (what.equals("list")) {
        return listed();
      }
      if (what.equals("any")) {
        List first = client.listObjectsV2(helper.getRequestFactory().newListObjectsV2Request(key + "/", null, 1)).getObjectSummaries();
        return first.isEmpty() ? null : first;
      }
      if (what.equals("write")) {
        byte[] content = (byte[]) subject;
        return client.putObject(helper.createPutObjectRequest(key, new ByteArrayInputStream(content), content.length, null));
      }
      if (what.equals("delete")) {
        client.deleteObject(helper.getRequestFactory().newDeleteObjectRequest(key));
        return null;
      }
      return client.deleteObjects(helper.getRequestFactory().newBulkDeleteRequest((List) subject, true));
    }

    private byte[] read() throws IOException {
      java.io.InputStream content = client.getObject(helper.getRequestFactory().newGetObjectRequest(key)).getObjectContent();
      try {
        return IOUtils.toByteArray(content);
      } finally {
        content.close();
      }
    }

    /** The object's metadata, null if there is no such object. */
    private Object found() {
      try {
        return client.getObjectMetadata(helper.getRequestFactory().newGetObjectMetadataRequest(key));
      } catch (AmazonS3Exception error) {
        if (error.getStatusCode() == 404) {
          return null;
        }
        throw error;
      }
    }

    private List listed() {
      List keys = new ArrayList();
      ListObjectsV2Request request = helper.getRequestFactory().newListObjectsV2Request(key + "/", null, MOST_DELETED);
      ListObjectsV2Result page;
      do {
        page = client.listObjectsV2(request);
        for (Iterator objects = page.getObjectSummaries().iterator(); objects.hasNext();) {
          keys.add(new DeleteObjectsRequest.KeyVersion(((S3ObjectSummary) objects.next()).getKey()));
        }
        request.setContinuationToken(page.getNextContinuationToken());
      } while (page.isTruncated());
      return keys;
    }
  }

  /** An object that is written at once when it is closed. */
  public static class Whole extends ByteArrayOutputStream {
    private final HudiIngestS3Files files;
    private final Path path;
    private boolean closed = false;

    public Whole(HudiIngestS3Files files, Path path) {
      this.files = files;
      this.path = path;
    }

    public void close() throws IOException {
      if (!closed) {
        closed = true;
        files.asked("write", path, toByteArray());
        files.written(path, size());
      }
    }
  }

  /** Reads a file in pages, each with a request of its own whose connection is free again once the page is here; or one that is here. */
  public static class Pages extends FSInputStream {
    private static final int PAGE_BYTES = 8 << 20;
    private final S3AFileSystem files;
    private final Path path;
    private final FileStatus status;
    private final long size;
    private long position = 0;
    private byte[] page;
    private long pageStart = 0;

    public Pages(S3AFileSystem files, Path path, FileStatus status, byte[] content) {
      this.files = files;
      this.path = path;
      this.status = status;
      this.size = status == null ? content.length : status.getLen();
      this.page = content;
    }

    public int read() throws IOException {
      byte[] one = new byte[1];
      return read(one, 0, 1) < 0 ? -1 : one[0] & 255;
    }

    public int read(byte[] target, int offset, int length) throws IOException {
      if (length == 0) {
        return 0;
      }
      if (position >= size) {
        return -1;
      }
      if (position < pageStart || position >= pageStart + page.length) {
        fetch();
      }
      int start = (int) (position - pageStart);
      int count = Math.min(length, page.length - start);
      System.arraycopy(page, start, target, offset, count);
      position += count;
      return count;
    }

    private void fetch() throws IOException {
      long start = position / PAGE_BYTES * PAGE_BYTES;
      byte[] content = new byte[(int) Math.min(PAGE_BYTES, size - start)];
      FSDataInputStream stream = opened();
      try {
        stream.readFully(start, content);
      } finally {
        stream.close();
      }
      page = content;
      pageStart = start;
    }

    private FSDataInputStream opened() throws IOException {
      try {
        // "random": a request asks for the page alone, not for the rest of the file.
        FutureDataInputStreamBuilder opening = files.openFile(path).withFileStatus(status);
        return (FSDataInputStream) ((CompletableFuture) opening.opt("fs.s3a.experimental.input.fadvise", "random").build()).get();
      } catch (ExecutionException error) {
        throw error.getCause() instanceof IOException ? (IOException) error.getCause() : new IOException(error.getCause());
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        throw new InterruptedIOException("interrupted while opening " + path);
      }
    }

    public int available() {
      return (int) Math.max(0, Math.min(pageStart + page.length, size) - position);
    }

    public void seek(long target) throws IOException {
      if (target < 0 || target > size) {
        throw new EOFException("cannot seek to " + target + " in " + size + " bytes of " + path);
      }
      position = target;
    }

    public long getPos() {
      return position;
    }

    public boolean seekToNewSource(long target) {
      return false;
    }
  }
}
