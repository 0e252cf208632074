"""Slices → reports: one Spark job that reads exactly the slices' offsets and runs a write task on each range."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hudi_ingest.config import Pipeline
from hudi_ingest.exceptions import BadRecord, DeadlineExceeded, EngineLost, Fenced, WriteIncomplete
from hudi_ingest.hudi.base_file import BaseFileLayout, heartbeat_path
from hudi_ingest.hudi.epoch import Epoch
from hudi_ingest.kafka import spark_options, told_by_spark
