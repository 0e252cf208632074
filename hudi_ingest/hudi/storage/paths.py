"""Paths below a table's base path: Hudi's own files and ours beside them, and data files in their partitions."""

from __future__ import annotations

import re

HOODIE = ".hoodie"
TIMELINE = f"{HOODIE}/timeline"
HISTORY = f"{TIMELINE}/history"
"""What Hudi has archived."""
METADATA_TABLE = f"{HOODIE}/metadata"
METADATA_TIMELINE = f"{METADATA_TABLE}/.hoodie/timeline"
METADATA_HISTORY = f"{METADATA_TIMELINE}/history"
INSTANT_FILE = re.compile(r"(?P<requested>\d+)(?:_(?P<completed>\d+))?\.(?P<rest>[a-z]+(?:\.[a-z]+)?)")
"""The name of a timeline's file: `<requested>_<completed>.<action>`, or `<requested>.<action>.<state>` while the instant is pending,
where the inflight file of a commit has no action. Must match the whole name, because Hudi writes a file as `<name>.<UUID>` before it
gives it its name, and one that was killed between the two has changed no state."""
ICEBERG = f"{HOODIE}/iceberg"
"""Iceberg's metadata of the table. Not above the data: engines that drop an Iceberg table, or look for its orphans, delete below it."""
MARKERS = f"{HOODIE}/.temp"
HEARTBEATS = f"{HOODIE}/.heartbeat"
PRIMARY = f"{HOODIE}/hoodie.properties"
BACKUP = f"{HOODIE}/hoodie.properties.backup"
PRIMARY_CHECKSUM = f"{HOODIE}/.hoodie.properties.crc"
PARTITION_METADATA = ".hoodie_partition_metadata"
"""A file in each partition's folder; without it readers do not recognize the folder as a partition."""

OWN_FILES = f"{HOODIE}/hudi_ingest"
EPOCH_PATH = f"{OWN_FILES}/epoch"
APPROVED_CHANGE = f"{OWN_FILES}/approved_schema_change"
"""Names the change of the table's columns that a person has approved."""
CUT_LOGS = f"{OWN_FILES}/cut_logs.json"
"""Lists the Kafka partitions whose log was cut, until a person accepts the loss."""
CATALOG_STATE = f"{OWN_FILES}/catalog.json"
ICEBERG_STATE = f"{OWN_FILES}/iceberg.json"
PUT_ASIDE = f"{OWN_FILES}/put_aside"
"""Damaged instants that were taken off the timeline, kept as evidence."""
DEAD_LETTERS = f"{OWN_FILES}/dead_letters"
COPIED_LETTERS = f"{DEAD_LETTERS}/copied"
"""Records up to which manifest dead letters have been copied to their topic."""

_MARKER_SUFFIX = ".marker.CREATE"


def heartbeat_path(instant: str) -> str:
    """Return the file that exists while the instant may be written; Hudi deletes it at commit and rollback."""
    return f"{HEARTBEATS}/{instant}"


def marker_path(instant: str, path: str) -> str:
    return f"{MARKERS}/{instant}/{path}{_MARKER_SUFFIX}"


def marked_path(instant: str, marker: str) -> str:
    """Return the path of the file whose marker this is."""
    return marker.removeprefix(f"{MARKERS}/{instant}/").removesuffix(_MARKER_SUFFIX)


def path_in(partition: str, name: str) -> str:
    """Return the path of a file in a partition, whose path is "" in a table without partitions."""
    return f"{partition}/{name}" if partition else name


def partition_metadata_path(partition: str) -> str:
    """Return the metadata file of a partition path."""
    return path_in(partition, PARTITION_METADATA)


def dead_letters_folder(instant: str) -> str:
    """Return the folder of a transaction's dead letters and of the manifest that lists them."""
    return f"{DEAD_LETTERS}/{instant}"
