"""The files of tables, on a file system of this machine or in an object store."""
