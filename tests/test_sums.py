"""What stands under a checksum, piece by piece; all of a store at once is `test_spoilt.py`."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from braid.errors import BraidError
from braid.stage import offset_log
from braid.store import opened
from braid.store.files import locked
from braid.topics import TopicStore, commit, documents, log
from braid.topics.lock import StoreLock
from braid.topics.sealed import has_seal, sealed, unsealed
from cli_help import braid, records
from spoiling import flipped
from sums import loaded, with_sum

MADE = Path(__file__).parent / "checkpoints"


def record(k: int, value: object = "x") -> dict[str, object]:
    return {"key": k, "value": {"V": value}, "timestamp": 1_700_000_000_000 + k}


def store_of(root: Path, *topics: str) -> TopicStore:
    store = TopicStore(opened(root / "s"))
    for name in topics:
        store.create(name)
        for n in range(3):
            store.append(name, [record(10 * n + k) for k in range(10)])
    return store


def wrong(root: Path) -> str:
    said = braid("verify", "--store", root / "s")
    return said.err if said.code else ""


# --------------------------------------------------------------------- the form


def test_any_bit_and_any_cut_of_a_document_is_noticed() -> None:
    for x in ({"a": 1, "b": "x", "n": [{"c": None}]}, {}, {"crc32": "00000000"}):
        for data in (json.dumps(x).encode(), json.dumps(x, indent=1).encode()):
            made = sealed(data, "name")
            assert json.loads(made).keys() - x.keys() == {"crc"} and json.loads(unsealed(made, "name")) == x
            others = [flipped(made, bit) for bit in range(8 * len(made))] + [made[:n] for n in range(len(made))]
            for other in [*others, made.removesuffix(b"\n") + b" \n", json.dumps(json.loads(made)).encode()]:
                try:
                    assert json.loads(unsealed(other, "name")) == x, other
                except ValueError:
                    continue
            with pytest.raises(ValueError, match="checksum"):
                unsealed(made, "other")
            assert unsealed(data) == data and not has_seal(data)
            with pytest.raises(ValueError, match="has no checksum"):
                unsealed(data, must=True)


# ----------------------------------------------------------------------- topics


def change(path: Path, of: Callable[[bytes], bytes]) -> None:
    path.write_bytes(of(path.read_bytes()))


def swapped(folder: Path, a: str, b: str) -> None:
    first, second = (folder / a).read_bytes(), (folder / b).read_bytes()
    (folder / a).write_bytes(second)
    (folder / b).write_bytes(first)


COMMITS: dict[str, Callable[[Path], object]] = {
    "count": lambda t: change(t / f".commits/{3:020d}.json", lambda x: x.replace(b'"count":10', b'"count":14')),
    "max": lambda t: change(t / f".commits/{1:020d}.json", lambda x: x.replace(b'"max":17', b'"max":13')),
    "swapped": lambda t: swapped(t / ".commits", f"{1:020d}.json", f"{2:020d}.json"),
    "another's": lambda t: shutil.copy(t.parent / "m/.commits" / f"{2:020d}.json", t / ".commits"),
    "without": lambda t: change(t / f".commits/{2:020d}.json", unsealed),
    "older": lambda t: change(
        t / f".commits/{2:020d}.json", lambda x: unsealed(x).replace(b'"format":3', b'"format":1')
    ),
    "format": lambda t: change(t / "topic.json", lambda x: x.replace(b'"format": 3', b'"format": 9')),
    "gone": lambda t: (t / "topic.json").unlink(),
    "of another": lambda t: shutil.copy(t.parent / "m/topic.json", t),
}


@pytest.mark.parametrize("how", COMMITS)
def test_what_tells_of_records_is_compared(how: str, tmp_path: Path) -> None:
    store = store_of(tmp_path, "l", "m")
    topic = tmp_path / "s/topics/l"
    COMMITS[how](topic)
    assert "topics/l/" in wrong(tmp_path)
    with pytest.raises(BraidError, match=r"topics/l/.*(damaged|missing)"):
        TopicStore(store.root).end_offsets("l")
    for words in (("retain", "l", "--for", "1d"), ("cat", "l"), ("put", "l")):
        said = braid(*words, "--store", tmp_path / "s", stdin='{"key":1,"value":{"V":"x"}}\n')
        assert said.code == 1 and "topics/l/" in said.err, words


def test_a_commit_of_another_topic_is_one_also_with_a_checksum(tmp_path: Path) -> None:
    store_of(tmp_path, "l", "m")
    path = tmp_path / "s/topics/l/.commits" / f"{2:020d}.json"
    path.write_bytes(with_sum(loaded(path) | {"topic": loaded(tmp_path / "s/topics/m/topic.json")["id"]}))
    assert "it is a commit of another topic" in wrong(tmp_path)
    path.write_bytes(with_sum(loaded(path) | {"number": 1}))
    assert "is damaged" in wrong(tmp_path)


def test_a_part_of_a_segment_is_compared(tmp_path: Path) -> None:
    store = TopicStore(opened(tmp_path / "s"))
    store.create("t")
    store.append_lines("t", [f'{{"key":{k},"value":1,"timestamp":1}}' for k in range(30_000)])
    (path,) = (tmp_path / "s/topics/t/0").iterdir()
    data = path.read_bytes()
    at = data.index(b'"key":20000,')
    path.write_bytes(data[: at + 6] + b"3" + data[at + 7 :])
    assert TopicStore(store.root).read("t", 0, 100, 200).height == 100
    with pytest.raises(BraidError, match="its checksum is"):
        TopicStore(store.root).read("t", 0, 20_000, 20_001)


def test_positions_are_compared(tmp_path: Path) -> None:
    store = TopicStore(opened(tmp_path / "s"))
    store.create("t")
    lines = pl.Series([json.dumps(record(k)) for k in range(3)])
    for n in range(2):
        positions = pl.DataFrame({"seq": [n, n, n], "hops": [0, 0, 0], "n": [0, 1, 2]})
        commit.append(store.topic("t"), lines, positions=positions)
    folder = tmp_path / "s/topics/t/0/.positions"
    first, second = sorted(folder.iterdir())
    whole = first.read_bytes()
    for data in (second.read_bytes(), flipped(whole, 4 * len(whole)), whole[:-9], None):
        first.unlink()
        if data is not None:
            first.write_bytes(data)
        assert ".positions" in wrong(tmp_path)
        with pytest.raises(BraidError, match="is not the segment"):
            TopicStore(store.root).read_positions("t", 0, 0, 3)
        first.write_bytes(whole)
    assert not wrong(tmp_path)


def test_a_document_of_another_name_is_none(tmp_path: Path) -> None:
    store = store_of(tmp_path, "l")
    for name in ("retention", "tables/l"):
        documents.changed(store.root, name, lambda _: b"{}")
    shutil.copy(tmp_path / "s/retention.json", tmp_path / "s/tables/l.json")
    assert "tables/l.json is damaged" in wrong(tmp_path)


def test_an_older_store_is_whole_and_goes_on(tmp_path: Path) -> None:
    """Its files have no checksums; what is written behind them does. From then on none may be without."""
    with tarfile.open(MADE / "format-6.tar.gz") as packed:
        packed.extractall(tmp_path / "s", filter="data")
    assert not wrong(tmp_path)
    store = TopicStore(opened(tmp_path / "s"))
    store.append("l", [record(9)])
    assert not wrong(tmp_path) and len(records("l", tmp_path / "s")) == 3
    newest = tmp_path / "s/topics/l/.commits" / f"{3:020d}.json"
    assert has_seal(newest.read_bytes())
    store.append("l", [record(10)])
    change(tmp_path / "s/topics/l/.commits" / f"{4:020d}.json", lambda x: unsealed(x).replace(b":3,", b":1,", 1))
    assert "it has no checksum, and commits before it have one" in wrong(tmp_path)


# ------------------------------------------------------------------------- cuts


def written(folder: Path, n: int = 4) -> list[bytes]:
    made = offset_log.OffsetLog(opened(str(folder)))
    for batch in range(n):
        made.add({"batch": batch, "next": {"0/0": 10 * (batch + 1)}, "ended": [], "idle": []})
    return (folder / offset_log.NAME).read_bytes().splitlines(keepends=True)


def test_a_changed_cut_is_refused(tmp_path: Path) -> None:
    lines = written(tmp_path)
    for number, old, new in ((1, b"20", b"30"), (1, b"20", b"15"), (0, b'"sums"', b'"suns"'), (2, b'"crc"', b'"crb"')):
        spoilt = [*lines[:number], lines[number].replace(old, new), *lines[number + 1 :]]
        (tmp_path / offset_log.NAME).write_bytes(b"".join(spoilt))
        with pytest.raises(BraidError, match=f"line {number + 1} is not what its checksum says"):
            offset_log.read(opened(str(tmp_path)), 3)
    for number in range(4):
        (tmp_path / offset_log.NAME).write_bytes(b"".join([*lines[:number], *lines[number + 1 :]]))
        with pytest.raises(BraidError, match="does not say where batch"):
            offset_log.read(opened(str(tmp_path)), 3)
    (tmp_path / offset_log.NAME).write_bytes(b"".join(lines)[:-5])
    with pytest.raises(BraidError, match="does not say where batch 3"):
        offset_log.read(opened(str(tmp_path)), 3)
    assert [x["batch"] for x in offset_log.read(opened(str(tmp_path)), 2)] == [0, 1, 2]


# ---------------------------------------------------------------- what is missing


def test_a_checkpoint_without_its_document_is_named(tmp_path: Path) -> None:
    """Nobody may take it for none: what its query has not read would be let go."""
    with tarfile.open(MADE / "format-6.tar.gz") as packed:
        packed.extractall(tmp_path / "s", filter="data")
    (tmp_path / "s/checkpoints/O/braid.json").unlink()
    place = ("--store", tmp_path / "s")
    assert "O/braid.json is missing" in wrong(tmp_path)
    said = braid("retain", "l", "--for", "1d", *place)
    assert said.code == 1 and "O/braid.json is missing" in said.err and len(records("l", tmp_path / "s")) == 2
    assert "O/braid.json is missing" in (told := braid("usage", *place).out) and "no query has read" not in told
    assert "O/braid.json is missing" in braid("sweep", *place).err
    shutil.rmtree(tmp_path / "s/checkpoints/O")
    for said in (braid("verify", *place), braid("retain", "l", "--for", "1d", *place)):
        assert said.code == 1 and "O holds what O wrote, and no checkpoint of O is known" in said.err
    (tmp_path / "s/checkpoints/X").mkdir()
    (tmp_path / "s/checkpoints/X/y").touch()
    assert "checkpoints/X is no checkpoint: it has y" in wrong(tmp_path)


def test_checkpoints_elsewhere_that_are_away_hold_all(tmp_path: Path) -> None:
    store = store_of(tmp_path, "l")
    made = json.dumps({"id": "x", "checkpoints": [str(tmp_path / "away")]}).encode()
    documents.changed(store.root, "store", lambda _: made)
    said = braid("retain", "l", "--for", "1d", "--store", tmp_path / "s")
    assert said.code == 1 and "nothing of l goes: the checkpoints in" in said.err
    told = braid("verify", "--store", tmp_path / "s")
    assert told.code == 0 and "are not there, and are not checked" in told.out


# ------------------------------------------------------------------ what is told


def test_records_whose_file_cannot_get_its_name_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_of(tmp_path, "l")
    real = os.replace

    def replace(source: str, target: str) -> None:
        if "/l/0/" in str(target):
            raise OSError(errno.ENOSPC, "No space left on device", target)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    said = braid("put", "l", "--store", tmp_path / "s", stdin='{"key":1,"value":{"V":"x"}}\n')
    assert said.code == 0 and len(records("l", tmp_path / "s")) == 31
    said = braid("put", "l", "--store", tmp_path / "s", stdin='{"key":1,"value":{"V":"x"}}\n')
    assert said.code == 1 and "No space left" in said.err and len(records("l", tmp_path / "s")) == 31
    monkeypatch.undo()
    assert braid("put", "l", "--store", tmp_path / "s", stdin='{"key":1,"value":{"V":"x"}}\n').code == 0
    assert not wrong(tmp_path) and len(records("l", tmp_path / "s")) == 32


def test_a_full_disk_ends_a_copy_with_the_name_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_of(tmp_path, "l")
    assert braid("backup", tmp_path / "copy", "--store", tmp_path / "s").code == 0

    def copy2(source: str, target: str, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", target)

    monkeypatch.setattr(shutil, "copy2", copy2)
    for words in (
        ("backup", tmp_path / "x", "--store", tmp_path / "s"),
        ("restore", tmp_path / "copy", tmp_path / "x"),
    ):
        said = braid(*words)
        assert said.code == 1 and f"cannot be copied to {tmp_path}/x: No space left on device" in said.err, said
        assert "[(" not in said.err and sorted(p.name for p in tmp_path.iterdir()) == ["copy", "s"]


def test_nothing_is_restored_of_a_copy_that_is_torn(tmp_path: Path) -> None:
    store_of(tmp_path, "l")
    (tmp_path / "copy").symlink_to(tmp_path / "s")
    (path,) = (tmp_path / "s/topics/l/0").glob(f"{10:020d}.jsonl")
    change(path, lambda data: data[:-3])
    assert braid("copy", tmp_path / "s", tmp_path / "x").code == 1
    said = braid("restore", tmp_path / "copy", tmp_path / "x")
    assert said.code == 1 and f"{tmp_path}/x/topics/l/0/{path.name}" in said.err and "nothing is left in" in said.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "s"]


def test_a_refused_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(fd: int, how: int) -> None:
        if how != fcntl.LOCK_UN:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    for take in (locked(str(tmp_path / "a.lock")), StoreLock(opened(tmp_path))):
        with pytest.raises(OSError, match="locks") as e, take:
            pass
        assert str(e.value.filename).startswith(str(tmp_path))


def test_rolled_up_commits_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FOLD", 2)
    store_of(tmp_path, "l")
    (rollup,) = (tmp_path / "s/topics/l/.commits").glob("*.rollup.json")
    whole = rollup.read_bytes()
    for data in (flipped(whole, 700), whole[:-30], with_sum(loaded(rollup) | {"topic": "x"}), unsealed(whole)):
        rollup.write_bytes(data)
        assert rollup.name in wrong(tmp_path)
