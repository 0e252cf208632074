"""P4: the table's epoch only grows, and one transaction alone has it."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import Fenced, TableUnreachable
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import EPOCH_PATH
from hudi_ingest.hudi.storage.storage import TableStorage, Versioned, WriteConflict
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch


@pytest.fixture
def storage(tmp_path: Path) -> TableStorage:
    return LocalStorage(str(tmp_path / "table"))


def test_p4_each_begin_fences_all_that_came_before(storage: TableStorage) -> None:
    epoch = TableEpoch(storage)
    assert epoch.current() == Epoch(0, "")
    first = epoch.advance(1, "a")
    epoch.require(first, "a")
    second = epoch.advance(7, "b")
    assert epoch.current() == second
    with pytest.raises(
        Fenced, match=r"^a must stop: epoch 1 of transaction a is over.*epoch 7 of transaction b"
    ) as raised:
        epoch.require(first, "a must stop")
    assert raised.value.transaction_id == "a"
    with pytest.raises(Fenced, match="not above the table's epoch 7"):
        epoch.advance(7, "c")
    assert epoch.current() == second
    # As of another ledger, or of a copy of the table.
    for other in (Epoch(7, "c"), Epoch(8, "b")):
        with pytest.raises(Fenced, match=r"in epoch 7 of transaction b"):
            epoch.require(other, "it must stop")


def test_p4_retiring_ends_an_own_epoch_and_leaves_another_ones(storage: TableStorage) -> None:
    epoch = TableEpoch(storage)
    mine = epoch.advance(3, "a")
    epoch.retire("b")
    epoch.require(mine, "a")
    epoch.retire("a")
    epoch.retire("a")
    assert epoch.current() == Epoch(4, "")
    with pytest.raises(Fenced, match=r"in epoch 4\. Nothing"):
        epoch.require(mine, "a")


def test_p4_a_store_that_does_not_compare_gets_no_epoch(storage: TableStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise TableUnreachable("it does not honour If-Match")

    monkeypatch.setattr(storage, "require_conditional_writes", refuse)
    with pytest.raises(TableUnreachable, match="If-Match"):
        TableEpoch(storage).advance(1, "a")
    assert TableEpoch(storage).current() == Epoch(0, "")


def test_a_damaged_epoch_is_an_error_that_says_what_to_do(storage: TableStorage) -> None:
    storage.write(EPOCH_PATH, b"half a wor")
    with pytest.raises(TableUnreachable, match=r"holds 'half a wor'.*delete that file"):
        TableEpoch(storage).current()


def test_too_many_open_files_is_not_called_a_matter_of_permissions(storage: TableStorage) -> None:
    epoch = TableEpoch(storage)
    epoch.advance(1, "a")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(TableUnreachable, match=r"Too many open files.*raise `ulimit -n`") as raised:
            epoch.current()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "permissions" not in str(raised.value)


def test_the_epoch_is_replaced_in_one_step(storage: TableStorage) -> None:
    epoch = TableEpoch(storage)
    epoch.advance(1, "1")
    with open(Path(storage.base_path, EPOCH_PATH), "rb") as before:
        for number in range(2, 20):
            epoch.advance(number, str(number))
        assert before.read() == Epoch(1, "1").to_json().encode(), "whoever reads the old one reads all of it"
    assert storage.names(".hoodie/hudi_ingest") == ("epoch",)


class ComparingStorage(LocalStorage):
    """An epoch in memory that is changed by compare-and-set. Before a change, other processes do what `interludes` holds."""

    def __init__(self) -> None:
        self.base_path = "memory"
        self.history: list[bytes] = [b""]
        self.interludes: list[tuple[str, int]] = []

    def read_versioned(self, path: str) -> Versioned:
        return Versioned(self.history[-1], str(len(self.history)))

    def put_if(self, path: str, content: bytes, before: Versioned) -> None:
        if self.interludes:
            act(self, *self.interludes.pop())
        if before.version != str(len(self.history)):
            raise WriteConflict(path)
        self.history.append(content)


def act(storage: ComparingStorage, kind: str, number: int) -> bool:
    """Begin or end the transaction of this number; returns whether a begin succeeded."""
    epoch, transaction_id = TableEpoch(storage), f"t-{number}"
    if kind == "retire":
        epoch.retire(transaction_id)
        assert epoch.current().transaction_id != transaction_id
        return False
    try:
        epoch.advance(number, transaction_id)
    except Fenced:
        assert epoch.current().number >= number
        return False
    return True


@given(
    st.lists(st.tuples(st.sampled_from(["begin", "begin", "retire"]), st.integers(1, 6)), max_size=8),
    st.lists(st.tuples(st.sampled_from(["begin", "retire"]), st.integers(1, 6)), max_size=6),
)
def test_p4_whoever_comes_between_the_epoch_only_grows(
    steps: list[tuple[str, int]], interludes: list[tuple[str, int]]
) -> None:
    storage = ComparingStorage()
    storage.interludes = interludes
    begun = [number for kind, number in steps if act(storage, kind, number)]
    epochs = [json.loads(text) for text in storage.history[1:]]
    numbers = [each["epoch"] for each in epochs]
    assert numbers == sorted(set(numbers))
    owners = [each["transaction"] for each in epochs]
    assert all(owners.count(f"t-{number}") == 1 for number in begun)
