"""Texts of an Arrow array, as compiled loops read them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hudi_ingest.records.compiled import compiled

TEXT = "Array(uint8, 1, 'C', readonly=True)"
PLACES = "Array(int32, 1, 'C', readonly=True)"
"""Signatures of what `key_text` and `key_places` return."""


def key_text(texts: pa.Array) -> np.ndarray:
    """Return the UTF-8 of all texts; see `key_places`."""
    content = texts.buffers()[2]
    return np.frombuffer(b"" if content is None else content, np.uint8)


def key_places(texts: pa.Array) -> np.ndarray:
    """Return where each text begins in `key_text`, and where the last one ends."""
    if not len(texts):
        return np.frombuffer(bytes(4), np.int32)
    return np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4)


@compiled(f"boolean({TEXT}, int64, int64, {TEXT}, int64, int64)")
def equal_texts(text: np.ndarray, start: int, end: int, other: np.ndarray, other_start: int, other_end: int) -> bool:
    """Return whether two ranges of bytes are the same."""
    if end - start != other_end - other_start:
        return False
    step = 0
    while start + step < end and text[start + step] == other[other_start + step]:
        step += 1
    return start + step == end
