"""The former place of `Looks`, until the coordinator takes it from `operations.observation`."""

from hudi_ingest.operations.observation import AT_ONCE as AT_ONCE
from hudi_ingest.operations.observation import Looks as Looks
