"""Which of several changes of the same key is the last. Import this only where it runs: it has compiled code."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hudi_ingest.hudi.files.key_texts import PLACES, TEXT, equal_texts, key_places, key_text
from hudi_ingest.records.compiled import compiled


def last_places(keys: pa.Array, folders: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return, ascending, the place of the last change of each key (string, none null) in each folder.

    `folders` numbers the table partition of each change; `order` has all places, in the order in which changes win.
    """
    last = np.zeros(len(keys), np.bool_)
    slots = np.full(1 << (2 * len(keys)).bit_length(), -1, np.int32)
    _mark_last(key_text(keys), key_places(keys), folders, order, slots, last)
    return np.flatnonzero(last)


@compiled(f"void({TEXT}, {PLACES}, int64[::1], int64[::1], int32[::1], boolean[::1])")
def _mark_last(
    text: np.ndarray, places: np.ndarray, folders: np.ndarray, order: np.ndarray, slots: np.ndarray, last: np.ndarray
) -> None:
    mask = np.uint64(len(slots) - 1)
    for step in range(len(order) - 1, -1, -1):
        place = order[step]
        start, end = places[place], places[place + 1]
        # FNV-1a, with its high bits mixed into the low ones, which choose the slot.
        hashed = np.uint64(0xCBF29CE484222325) ^ np.uint64(folders[place])
        for index in range(start, end):
            hashed = (hashed ^ np.uint64(text[index])) * np.uint64(0x100000001B3)
        slot = (hashed ^ hashed >> np.uint64(29)) & mask
        while True:
            other = slots[slot]
            if other < 0:
                slots[slot] = place
                last[place] = True
                break
            if folders[other] == folders[place] and equal_texts(
                text, start, end, text, places[other], places[other + 1]
            ):
                break
            slot = (slot + np.uint64(1)) & mask
