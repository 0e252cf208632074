"""How changes of a keyed table become log files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hudi_ingest.hudi.files.file_groups import id_of
from hudi_ingest.hudi.timeline.epoch import Epoch


@dataclass(frozen=True, slots=True)
class KeyedLayout:
    """How changes become log files; the same for all tasks of a transaction."""

    instant: str
    epoch: Epoch
    partition_by: tuple[str, ...]
    hive_style: bool
    escaped_folders: bool
    key: tuple[str, ...]
    ordering: tuple[str, ...]
    """The table's ordering fields. Of two changes of a key the one with the greater values wins, and of equal ones the later."""
    buckets: int
    schema_json: str
    """The Avro schema of a log file's rows, with Hudi's columns."""
    compression: str
    groups: Mapping[str, str] = field(default_factory=dict)
    """File ids of buckets that do not have the fixed one, by `<partition path>|<bucket>`."""

    def file_id(self, partition_path: str, bucket: int) -> str:
        """Return the id of the file group that holds a bucket. It begins with the bucket, as Hudi requires."""
        return id_of(self.groups, partition_path, bucket)

    @property
    def names_single_key(self) -> bool:
        """Whether the record key is `id:x` rather than `x` if its only column is id: see `hudi.options.key_generator`."""
        return len(self.partition_by) > 1
