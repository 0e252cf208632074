import java.io.EOFException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.S3AFileSystem;

/**
 * Hadoop's S3 client, except that a stream of a log file, of a metadata table or a keyed one, has no connection between two reads.
 * Hudi 1.2 leaves such streams open, one for each log file that a lookup, a compaction or a query reads, and each kept a
 * connection of the client's pool: after some ten table services, or one compaction of a hundred log files, a driver had none
 * left. Compiled by Janino: raw types, no lambdas.
 */
public class HudiIngestS3Files extends S3AFileSystem {
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    if (path.getName().indexOf(".log.") < 0) {
      return super.open(path, bufferSize);
    }
    return new FSDataInputStream(new Pages(this, path, getFileStatus(path)));
  }

  /** Reads a file in pages, each with a request of its own whose connection is free again once the page is here. */
  public static class Pages extends FSInputStream {
    private static final int PAGE_BYTES = 8 << 20;
    private final S3AFileSystem files;
    private final Path path;
    private final FileStatus status;
    private long position = 0;
    private byte[] page = new byte[0];
    private long pageStart = 0;

    public Pages(S3AFileSystem files, Path path, FileStatus status) {
      this.files = files;
      this.path = path;
      this.status = status;
    }

    public int read() throws IOException {
      byte[] one = new byte[1];
      return read(one, 0, 1) < 0 ? -1 : one[0] & 255;
    }

    public int read(byte[] target, int offset, int length) throws IOException {
      if (length == 0) {
        return 0;
      }
      if (position >= status.getLen()) {
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
      byte[] content = new byte[(int) Math.min(PAGE_BYTES, status.getLen() - start)];
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
      return (int) Math.max(0, Math.min(pageStart + page.length, status.getLen()) - position);
    }

    public void seek(long target) throws IOException {
      if (target < 0 || target > status.getLen()) {
        throw new EOFException("cannot seek to " + target + " in " + status.getLen() + " bytes of " + path);
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
