"""The first pieces of files, made before anybody reads on: the same as without, each made once."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from braid.errors import BraidError
from braid.files import early
from braid.files.early import Early
from braid.files.input import FileInput
from braid.files.listing import Found
from braid.files.watch import Files, FileWatch, read_all
from braid.store import opened
from braid.store.files import UNFINISHED
from test_file_watch import SOURCE, World, rows

FIRST = 100  # bytes of a first piece


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("braid.files.watch.PIECE", FIRST)
    monkeypatch.setattr("braid.files.text.BLOCK", 64)
    return World(tmp_path)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Where each piece begins that is parsed, and whether that was early."""
    found: list[tuple[int, bool]] = []
    parsed = FileInput.parsed

    def told(self: FileInput, f: object, start: int, last: bool, most: int | None) -> object:
        found.append((start, threading.current_thread().name == "files read early"))
        return parsed(self, f, start, last, most)  # type: ignore[arg-type]

    monkeypatch.setattr(FileInput, "parsed", told)
    return found


def started(world: World, between: Callable[[], object] = lambda: None, up: bool = False) -> FileWatch:
    """A start as `braid run` has it; what happens `between` the early reading and Spark's start."""
    watch = FileWatch(SOURCE, Files(world.pattern), opened(world.folder / "q"), note=world.notes.append, up=up)
    watch.check()
    first = watch.first_of_all()
    reading = Early([] if first is None else [first])
    between()
    watch.begin()
    read_all([watch])
    reading.end()
    assert not early._PROMISED
    finished()
    assert not any(UNFINISHED.search(p.name) for p in world.folder.iterdir())
    return watch


def finished() -> None:
    """The early reading is done."""
    for thread in threading.enumerate():
        if thread.name == "files read early":
            thread.join(10)


def quoted(count: int) -> str:
    """Lines of CSV, some texts over two of them."""
    names = [f"{n}\n{n}" if n % 3 == 0 else str(n) for n in range(count)]
    return "k,v,ts\n" + "".join(f'{n},"{name}",{n}\n' for n, name in enumerate(names))


def lines(count: int) -> str:
    return "".join(json.dumps({"K": n, "V": str(n), "TS": n}) + "\n" for n in range(count))


def content(kind: str, count: int) -> bytes:
    if kind == "parquet":
        made = io.BytesIO()
        columns = {"K": pl.Series(range(count), dtype=pl.Int32), "V": [str(n) for n in range(count)]}
        pl.DataFrame(columns | {"TS": pl.Series(range(count), dtype=pl.Int64)}).write_parquet(made)
        return made.getvalue()
    text = (quoted(count) if kind.startswith("csv") else lines(count)).encode()
    return gzip.compress(text) if kind.endswith("gz") else text


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("count", [1, 3, 50, 500])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "csv.gz", "jsonl.gz", "parquet"])
def test_it_is_the_same_as_without(world: World, made: list[tuple[int, bool]], kind: str, count: int, up: bool) -> None:
    world.put(f"a.{kind}", content(kind, count))
    world.put(f"b.{kind}", content(kind, 2))
    whole = world.start()
    expected, pieces = rows(whole), whole.input.log.pieces
    files = sorted(p.name for p in (world.folder / "q.files").rglob("*") if p.is_file())
    assert files
    shutil.rmtree(world.folder / "q")
    shutil.rmtree(world.folder / "q.files")
    made.clear()
    watch = started(world, up=up)
    assert rows(watch) == expected and watch.input.log.pieces == pieces
    begins = [start for start, _ in made]
    assert len(begins) == len(pieces), "none is made twice"
    whole_and_large = kind not in ("csv", "jsonl") and pieces[0].size > 8 * FIRST
    in_a = 0 if whole_and_large else sum(p.name.startswith("a") for p in pieces)
    assert sum(is_early for _, is_early in made) == min(in_a, early.PIECES)
    assert sorted(p.name for p in (world.folder / "q.files").rglob("*") if p.is_file()) == files


def test_who_comes_late_finds_what_was_made(world: World, made: list[tuple[int, bool]]) -> None:
    world.put("a.jsonl", lines(50))

    watch = started(world, finished)
    assert len(rows(watch)) == 50 and sum(is_early for _, is_early in made) == early.PIECES


def test_a_file_that_changes_meanwhile_is_read_as_it_is_then(world: World) -> None:
    world.put("a.jsonl", lines(50))
    watch = started(world, lambda: world.put("a.jsonl", lines(60), age=50))
    assert [k for k, *_ in rows(watch)] == list(range(60))


def test_one_that_goes_meanwhile_is_not_missed(world: World) -> None:
    path = world.put("a.jsonl", lines(5))
    world.put("b.jsonl", lines(3))
    watch = started(world, path.unlink)
    assert len(rows(watch)) == 3


def test_copies_that_were_swept_away_are_made_again(world: World) -> None:
    world.put("a.jsonl", lines(50))

    def sweep() -> None:
        finished()
        folders = [p for p in world.folder.iterdir() if UNFINISHED.search(p.name)]
        assert len(folders) == 1 and list(folders[0].iterdir())
        opened(world.folder).sweep()

    assert len(rows(started(world, sweep))) == 50


@pytest.mark.parametrize("ending", [".rows", ".times"])
def test_a_copy_that_was_spoilt_is_made_again(world: World, ending: str) -> None:
    """Each is looked at before its rows are read, as any copy."""
    world.put("a.jsonl", lines(50))
    whole = rows(world.start())
    shutil.rmtree(world.folder / "q")

    def spoil() -> None:
        finished()
        for path in world.folder.glob(f"q.files~*/*{ending}"):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)

    assert rows(started(world, spoil)) == whole


def test_one_that_could_not_be_made_early_is_made_when_it_is_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("a.jsonl", lines(50))
    parsed = FileInput.parsed

    def full(self: FileInput, f: Found, start: int, last: bool, most: int | None) -> object:
        if start and threading.current_thread().name == "files read early":
            raise OSError(28, "No space left on device")
        return parsed(self, f, start, last, most)

    monkeypatch.setattr(FileInput, "parsed", full)
    assert len(rows(started(world))) == 50


def test_what_cannot_be_read_is_told_where_it_is_read(world: World) -> None:
    path = world.put("a.csv", quoted(50))

    def spoil() -> None:
        raise BraidError("no room", "make some")

    with pytest.MonkeyPatch.context() as m:
        m.setattr(FileInput, "parsed", lambda *_: spoil())
        with pytest.raises(BraidError, match="no room"):
            started(world)
    early._PROMISED.clear()
    shutil.rmtree(world.folder / "q")
    assert path.exists() and len(rows(started(world))) == 50


def test_what_is_not_at_rest_or_was_read_before_waits(world: World, made: list[tuple[int, bool]]) -> None:
    world.put("a.jsonl", lines(50), age=5)
    assert len(rows(started(world))) == 50
    world.put("b.jsonl", lines(50))
    assert len(rows(started(world))) == 100
    assert not any(is_early for _, is_early in made)


def test_what_nobody_asks_for_leaves_no_trace_in_the_log(world: World) -> None:
    world.put("a.jsonl", lines(50))
    watch = FileWatch(SOURCE, Files(world.pattern), opened(world.folder / "q"))
    first = watch.first_of_all()
    assert first is not None
    Early([first]).end()
    assert not early._PROMISED and not list((world.folder / "q").rglob("*.jsonl"))
    assert len(rows(world.start())) == 50
