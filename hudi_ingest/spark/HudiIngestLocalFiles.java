import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.FileSystemException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FilterFileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.functional.RemoteIterators;

/**
 * Hadoop's local file system without its native library runs `ls` for each file that it lists, and `chmod` for each that it
 * creates: milliseconds, where the system calls take microseconds. What one call says it asks for by five. Compiled by Janino: raw types, no
 * lambdas.
 */
public class HudiIngestLocalFiles extends RawLocalFileSystem implements java.util.function.Consumer {
  private static final int SPECIAL_BITS = 07000;
  private static final int KEPT_FOLDERS = 64;
  private static final int KEPT_NAMES = 2000;
  /**
   * By folder, the paths of its names when it was listed last, for folders with few names, as timelines are. A path never changes, and is
   * parsed four times when it is made. 45 MB at most.
   */
  private final Map kept = Collections.synchronizedMap(new LinkedHashMap(16, 0.75f, true) {
    protected boolean removeEldestEntry(Map.Entry eldest) {
      return size() > KEPT_FOLDERS;
    }
  });

  /** Replaces the implementation in the file system that the JVM shares for local files. Throws before it has changed anything. */
  public void accept(Object configuration) {
    try {
      Files.getAttribute(Paths.get(System.getProperty("java.io.tmpdir"), new String[0]), "unix:mode");
      Configuration settings = (Configuration) configuration;
      initialize(getUri(), settings);
      Field implementation = FilterFileSystem.class.getDeclaredField("fs");
      implementation.setAccessible(true);
      implementation.set(FileSystem.getLocal(settings), this);
    } catch (IOException error) {
      throw new IllegalStateException(error);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  public void setPermission(org.apache.hadoop.fs.Path path, FsPermission permission) throws IOException {
    Path file = pathToFile(path).toPath();
    int mode = ((Integer) Files.getAttribute(file, "unix:mode")).intValue();
    if (permission.getStickyBit() || (mode & SPECIAL_BITS) != 0) {
      // chmod keeps a folder's setgid bit; Java would drop it.
      super.setPermission(path, permission);
    } else if ((mode & 0777) != permission.toShort()) {
      Files.setPosixFilePermissions(file, PosixFilePermissions.fromString(permission.toString()));
    }
  }

  public FileStatus getFileStatus(org.apache.hadoop.fs.Path path) throws IOException {
    return status(path.makeQualified(getUri(), getWorkingDirectory()), getDefaultBlockSize(path));
  }

  /** Hudi lists a timeline a dozen times in a transaction; half of its files are Hadoop's checksums, which the filter leaves out. */
  public FileStatus[] listStatus(org.apache.hadoop.fs.Path folder, PathFilter filter) throws IOException {
    String[] names = pathToFile(folder).list();
    if (names == null) {
      // A file, or a folder that is not there or cannot be read.
      return super.listStatus(folder, filter);
    }
    org.apache.hadoop.fs.Path parent = folder.makeQualified(getUri(), getWorkingDirectory());
    long blockSize = getDefaultBlockSize(parent);
    Map known = (Map) kept.get(parent);
    Map paths = new HashMap(2 * names.length);
    List found = new ArrayList(names.length);
    for (int index = 0; index < names.length; index++) {
      org.apache.hadoop.fs.Path path = known == null ? null : (org.apache.hadoop.fs.Path) known.get(names[index]);
      if (path == null) {
        path = new org.apache.hadoop.fs.Path(parent, new org.apache.hadoop.fs.Path(null, null, names[index]));
      }
      paths.put(names[index], path);
      if (filter.accept(path)) {
        try {
          found.add(status(path, blockSize));
        } catch (FileNotFoundException deleted) {
          // As Hadoop does with files that vanish while it looks.
          continue;
        }
      }
    }
    if (names.length <= KEPT_NAMES) {
      kept.put(parent, paths);
    }
    return (FileStatus[]) found.toArray(new FileStatus[found.size()]);
  }

  protected RemoteIterator listLocatedStatus(org.apache.hadoop.fs.Path folder, PathFilter filter) throws IOException {
    FileStatus[] listed = listStatus(folder, filter);
    List located = new ArrayList(listed.length);
    for (int index = 0; index < listed.length; index++) {
      FileStatus file = listed[index];
      located.add(new LocatedFileStatus(file, file.isDirectory() ? null : getFileBlockLocations(file, 0, file.getLen())));
    }
    return RemoteIterators.remoteIteratorFromIterable(located);
  }

  private FileStatus status(org.apache.hadoop.fs.Path path, long blockSize) throws IOException {
    try {
      Path file = pathToFile(path).toPath();
      PosixFileAttributes attributes = (PosixFileAttributes) Files.readAttributes(file, PosixFileAttributes.class);
      // With a folder's sticky bit.
      FsPermission permission = attributes.isDirectory()
          ? new FsPermission((short) (((Integer) Files.getAttribute(file, "unix:mode")).intValue() & 01777))
          : null;
      return new Status(path, blockSize, attributes, permission);
    } catch (FileSystemException missing) {
      // Also where the folder may not be read, as Hadoop does.
      throw new FileNotFoundException("File " + path + " does not exist");
    }
  }

  /** Looks a file's owners up, which takes longer than all else, and writes its permissions as Hadoop does, when somebody asks. */
  private static class Status extends FileStatus {
    private final transient PosixFileAttributes attributes;

    Status(org.apache.hadoop.fs.Path path, long blockSize, PosixFileAttributes attributes, FsPermission permission) {
      super(attributes.size(), attributes.isDirectory(), 1, blockSize, attributes.lastModifiedTime().toMillis(),
          attributes.lastAccessTime().toMillis(), permission, null, null, path);
      this.attributes = attributes;
    }

    public FsPermission getPermission() {
      return attributes == null || isDirectory()
          ? super.getPermission()
          : FsPermission.valueOf("-" + PosixFilePermissions.toString(attributes.permissions()));
    }

    public String getOwner() {
      return attributes == null ? super.getOwner() : attributes.owner().getName();
    }

    public String getGroup() {
      return attributes == null ? super.getGroup() : attributes.group().getName();
    }
  }
}
