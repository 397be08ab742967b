"""Checksums of what a partition begins with: the same for ever, however its segments lie."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import BraidError
from braid.store import opened
from braid.topics import TopicStore, log, publish, stage
from braid.topics.prefix import joined
from braid.topics.reading import bytes_between


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_sums_of_parts_add_up(parts: list[bytes]) -> None:
    crc = 0
    for part in parts:
        crc = joined(crc, zlib.crc32(part), len(part))
    assert crc == zlib.crc32(b"".join(parts))


def filled(root: Path, batches: int, first: int = 0) -> TopicStore:
    store = TopicStore(opened(root))
    store.create("t", 2)
    for n in range(first, batches):
        store.append("t", [{"key": n, "value": {"n": n}, "timestamp": n, "partition": p} for p in (0, 1) for _ in "ab"])
    return store


def whole(store: TopicStore, partition: int, end: int) -> int:
    return zlib.crc32(bytes_between(store.topic("t"), partition, 0, end))


def test_an_end_is_that_of_a_commit(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", 3)
    found = [store.prefix("t", 0, n) for n in range(7)]
    assert [end for end, _ in found] == [0, 2, 2, 4, 4, 6, 6]
    assert all(crc == whole(store, 0, end) == store.checksum("t", 0, end) for end, crc in found)
    assert store.checksum("t", 0, 7) is None and store.checksum("t", 2, 0) is None


def test_rolling_up_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FOLD", 5)
    store = filled(tmp_path / "s", 3)
    before = [store.prefix("t", 1, n) for n in (2, 4, 6)]
    filled(tmp_path / "s", 40, 3)
    for fresh in (store, TopicStore(opened(tmp_path / "s"))):
        assert len(fresh.topic("t").view().parts[1]) < 20
        assert [fresh.checksum("t", 1, end) for end, _ in before] == [crc for _, crc in before]
        assert [fresh.prefix("t", 1, 80)] == [(80, whole(fresh, 1, 80))]


def test_a_line_without_its_end_is_not_rolled_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path / "s", 1)
    by_hand = tmp_path / "s" / "topics" / "t" / "0" / f"{2:020d}.jsonl"
    by_hand.write_bytes(b'{"key":1,"value":1,"timestamp":1}')
    assert store.end_offsets("t") == [3, 2]
    before = store.prefix("t", 0, 3)
    monkeypatch.setattr(log, "FOLD", 5)
    filled(tmp_path / "s", 30, 1)
    assert TopicStore(opened(tmp_path / "s")).checksum("t", 0, 3) == before[1]


def test_another_history_has_other_sums(tmp_path: Path) -> None:
    one, other = filled(tmp_path / "a", 3), filled(tmp_path / "b", 2)
    other.append("t", [{"key": 9, "value": {"n": 9}, "timestamp": 9, "partition": p} for p in (0, 1) for _ in "ab"])
    assert one.checksum("t", 0, 4) == other.checksum("t", 0, 4)
    assert one.checksum("t", 0, 6) != other.checksum("t", 0, 6)


def test_a_batch_is_published_by_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when its commit was folded."""
    monkeypatch.setattr(log, "FOLD", 3)
    store = filled(tmp_path / "s", 1)
    topic = store.topic("t")
    line = bytes_between(topic, 0, 0, 1).decode().rstrip()
    import polars as pl

    def batch(n: int, digest: str) -> bool:
        return publish(topic, "q", n, [stage(topic, "q", n, 0, pl.Series([line]))], digest=digest)

    assert batch(0, "a") and batch(1, "b") and not batch(1, "b")
    filled(tmp_path / "s", 12, 1)
    again = TopicStore(opened(tmp_path / "s")).topic("t").view()
    assert (again.queries["q"], again.digests["q"]) == (1, "b") and again.rollups
    for n, digest in ((1, "c"), (0, "a")):
        with pytest.raises(BraidError, match=f"batch {n} of q was written into t by another writer"):
            batch(n, digest)
    assert batch(2, "c")
