import java.io.File;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
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
 * creates: milliseconds, where the system calls take microseconds. Compiled by Janino: raw types, no lambdas.
 */
public class HudiIngestLocalFiles extends RawLocalFileSystem implements java.util.function.Consumer {
  private static final int SPECIAL_BITS = 07000;

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

  protected RemoteIterator listLocatedStatus(org.apache.hadoop.fs.Path folder, PathFilter filter) throws IOException {
    FileStatus[] listed = listStatus(folder, filter);
    List located = new ArrayList(listed.length);
    for (int index = 0; index < listed.length; index++) {
      FileStatus file = listed[index];
      PosixFileAttributes attributes;
      try {
        attributes = (PosixFileAttributes) Files.readAttributes(pathToFile(file.getPath()).toPath(), PosixFileAttributes.class);
      } catch (NoSuchFileException deleted) {
        // As listStatus does with files that vanish while it looks.
        continue;
      }
      FileStatus complete = new FileStatus(
          file.getLen(),
          file.isDirectory(),
          file.getReplication(),
          file.getBlockSize(),
          file.getModificationTime(),
          file.getAccessTime(),
          FsPermission.valueOf("-" + PosixFilePermissions.toString(attributes.permissions())),
          attributes.owner().getName(),
          attributes.group().getName(),
          file.getPath());
      located.add(new LocatedFileStatus(complete, file.isDirectory() ? null : getFileBlockLocations(file, 0, file.getLen())));
    }
    return RemoteIterators.remoteIteratorFromIterable(located);
  }
}
