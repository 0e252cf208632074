"""CSV records -> rows: batches by `csv_fast` where its result is proved right, otherwise record by record.

`csv_exact` defines what is accepted.
"""

from __future__ import annotations

import pyarrow as pa

from hudi_ingest.records.convert.converter import Decoded, Options
from hudi_ingest.records.convert.csv.exact import CsvOptions, CsvReader
from hudi_ingest.records.convert.csv.fast import FastPath
from hudi_ingest.records.convert.fast_path import decode_in_pieces, record_by_record
from hudi_ingest.records.convert.options import read_options
from hudi_ingest.records.convert.values import require_values


def csv_converter(schema: pa.Schema, options: Options) -> CsvConverter:
    """Create the converter. Raises ValueError when a column's type cannot be read from CSV, or an option is wrong."""
    return CsvConverter(schema, read_options(CsvOptions, "csv", options))


class CsvConverter:
    """Decodes CSV records to rows of `schema`. Raises ValueError at construction as `csv_converter` does."""

    def __init__(self, schema: pa.Schema, options: CsvOptions) -> None:
        self._schema, self._options = schema, options
        self._exact = record_by_record(schema, CsvReader(schema, options).read)
        self._fast = FastPath(schema, options).read

    def __reduce__(self) -> tuple[type[CsvConverter], tuple[pa.Schema, CsvOptions]]:
        return (CsvConverter, (self._schema, self._options))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        require_values(values)
        return decode_in_pieces(self._schema, values, self._fast, self._exact)
