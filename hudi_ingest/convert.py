"""The public names for converters of one's own; `from hudi_ingest import Converter, Decoded, Rejected` is the same."""

from hudi_ingest.records.convert.converter import Converter, Decoded, Rejected
from hudi_ingest.records.convert.formats import converter_for

__all__ = ["Converter", "Decoded", "Rejected", "converter_for"]
