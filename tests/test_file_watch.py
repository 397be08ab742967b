"""What of the files of an input is read next: order, growth, what is the same and what was changed, unfinished names.

Rule: every list that is built here piece by piece gives the rows of the same files read whole.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from braid.errors import BraidError
from braid.files import watch as file_watch
from braid.files.input import open_files
from braid.files.listing import look, matches
from braid.files.log import FileLog
from braid.files.watch import Files, FileWatch, log_path, read_all
from braid.plan.logical import Source, SourceColumn, Timestamp
from braid.records.encoding import Encoding
from braid.store import opened
from braid.types import Column, Scalar
from effort import examples

COLUMNS = tuple(
    SourceColumn(f"X.{n}", n, Column(n, t), "key" if n == "K" else "value")
    for n, t in [("K", Scalar.INT), ("V", Scalar.VARCHAR), ("TS", Scalar.BIGINT)]
)
SOURCE = Source("X", "S", "t", "stream", COLUMNS, Encoding(), Timestamp("TS"))
OLD = 1_000_000_000  # s


class World:
    """A folder of files and one source over it; `start` is another run."""

    def __init__(self, folder: Path, pattern: str = "in/*") -> None:
        self.folder, self.pattern = folder, str(folder / pattern)
        self.notes: list[str] = []
        (folder / "in").mkdir(exist_ok=True)

    def put(self, name: str, text: str | bytes, age: float = 100) -> Path:
        path = self.folder / "in" / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        now = path.stat().st_mtime_ns
        os.utime(path, ns=(now, now - int(age * 1e9)))
        return path

    def start(self, done: int = 0, planned: int | None = None, **more: Any) -> FileWatch:
        reached = (done, done if planned is None else planned)
        watch = FileWatch(
            SOURCE, Files(self.pattern), opened(self.folder / "q"), reached, note=self.notes.append, **more
        )
        watch.check()
        watch.begin()
        read_all([watch])
        return watch


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def rows(watch: FileWatch) -> list[tuple[Any, ...]]:
    """As another process sees them."""
    x = pickle.loads(pickle.dumps(watch.input))
    d = x.read(0, 0, x.ends()[0])
    assert d.error.null_count() == d.rows.height
    assert d.rows["_offset"].to_list() == list(range(d.rows.height))
    return d.rows.select("X.K", "X.V", "_t").rows()


def keys(watch: FileWatch) -> list[int]:
    return [k for k, *_ in rows(watch)]


def refused(world: World, match: str, **more: Any) -> None:
    with pytest.raises(BraidError, match=match) as e:
        world.start(**more)
    assert e.value.hint


HEAD = "k,v,ts\n"


def test_new_files_come_behind_those_that_were_read(world: World) -> None:
    world.put("b.csv", HEAD + "1,a,1\n")
    world.put("c.jsonl", '{"K":2,"V":"b","TS":2}\n')
    watch = world.start()
    assert keys(watch) == [1, 2] and not world.notes
    pl.DataFrame({"k": [4], "v": ["d"], "ts": [4]}).write_parquet(world.folder / "in" / "d.parquet")
    world.put("a.csv", HEAD + "3,c,3\n")
    watch.look()
    assert keys(watch) == [1, 2, 3, 4]
    assert world.notes == ["S: a.csv sorts before c.jsonl, which came first: it is read behind it"]
    assert keys(world.start(4)) == [1, 2, 3, 4] and len(world.notes) == 1


def test_equal_content_under_another_name_is_another_file(world: World) -> None:
    for name in ("a.csv", "b.csv"):
        world.put(name, HEAD + "1,a,1\n")
    assert keys(world.start()) == [1, 1]


def test_a_touched_or_restored_file_is_the_same(world: World) -> None:
    world.put("a.csv", HEAD + "1,a,1\n")
    pl.DataFrame({"k": [2], "v": ["b"], "ts": [2]}).write_parquet(world.folder / "in" / "b.parquet")
    with gzip.open(world.folder / "in" / "c.csv.gz", "wt") as f:
        f.write(HEAD + "3,c,3\n")
    watch = world.start()
    for path in (world.folder / "in").iterdir():
        text = path.read_bytes()
        path.unlink()
        path.write_bytes(text)
        os.utime(path, (OLD, OLD))
    watch.look()
    assert keys(watch) == [1, 2, 3]
    assert keys(world.start(0, 3)) == [1, 2, 3]
    assert len(FileLog.open(log_path(opened(str(world.folder / "q")), "S"), "").pieces) == 6


def test_a_log_grows_and_each_part_is_read_once(world: World) -> None:
    path = world.put("a.csv", HEAD)
    watch = world.start(up=True)
    for i in range(50):
        with path.open("a") as f:
            f.write(f"{i},x,{i}\n" * (i % 3))
        watch.look()
    want = [i for i in range(50) for _ in range(i % 3)]
    assert keys(watch) == want
    assert [(p.start, p.stop) for p in watch.input.log.of("a.csv")][-1][1] == path.stat().st_size
    assert keys(world.start(len(want))) == want


@pytest.mark.parametrize("seed", range(examples(6, 1)))
def test_a_file_that_grows_anyhow_gives_the_rows_of_the_whole(world: World, seed: int) -> None:
    """Cut anywhere, also within a line or a character; runs that stay up between runs that end."""
    r = random.Random(seed)
    lines = [(i, "".join(r.choices('ab,"\nä', k=r.randrange(6))) or "-", i) for i in range(60)]
    frame = pl.DataFrame(lines, schema=["K", "V", "TS"], orient="row")
    name = r.choice(["a.csv", "a.jsonl"])
    (frame.write_csv if name == "a.csv" else frame.write_ndjson)(world.folder / "whole")
    text = (world.folder / "whole").read_bytes()
    cuts = sorted({*r.sample(range(len(text)), 12), len(text)})
    watch = None
    for cut in cuts:
        world.put(name, text[:cut], age=0)
        if watch is None or r.random() < 0.3:
            watch = world.start(watch.input.log.end if watch else 0, up=True)
        watch.look()
        assert keys(watch) == list(range(len(keys(watch))))
    assert rows(world.start(len(keys(watch)))) == [(k, v, t) for k, v, t in lines]


def test_a_last_line_without_an_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put("a.csv", HEAD + "1,a,1\n2,b", age=2)
    watch = world.start(up=True)
    assert keys(watch) == [1]
    world.put("a.csv", HEAD + "1,a,1\n2,bb,2\n3,c,3", age=2)
    watch.look()
    assert rows(watch) == [(1, "a", 1), (2, "bb", 2)]
    world.put("a.csv", HEAD + "1,a,1\n2,bb,2\n3,c,3", age=11)
    watch.look()
    assert keys(watch) == [1, 2, 3]
    world.put("a.csv", HEAD + "1,a,1\n2,bb,2\n3,c,3\r\n4,d,4\n")
    watch.look()
    assert keys(watch) == [1, 2, 3, 4]
    world.put("b.csv", HEAD + "5,e,5")
    assert keys(world.start(4)) == [1, 2, 3, 4, 5]
    world.put("b.csv", HEAD + "5,e,50\n")
    refused(world, r"the last line of b\.csv was read when it had no end, and now it goes on", done=5)


def test_a_quoted_text_that_is_half_written_is_waited_for(world: World) -> None:
    half, rest = '1,a,1\n2,"b\n', 'c",2\n3,d,3\n'
    world.put("a.csv", HEAD + half, age=2)
    watch = world.start(up=True)
    assert keys(watch) == [1]
    world.put("a.csv", HEAD + half + 'x\n""\n', age=2)
    watch.look()
    assert keys(watch) == [1]
    world.put("a.csv", HEAD + half + 'x\n""\n' + rest, age=2)
    watch.look()
    assert rows(watch) == [(1, "a", 1), (2, 'b\nx\n"\nc', 2), (3, "d", 3)]


def test_a_quote_that_nobody_closes_costs_its_line_and_the_file_goes_on(world: World) -> None:
    text = HEAD + '1,a,1\n2,"b\n3,c,3\n'
    world.put("a.csv", text, age=11)
    watch = world.start(up=True)

    def read(watch: FileWatch) -> list[int | None]:
        return watch.input.read(0, 0, watch.input.ends()[0]).rows["X.K"].to_list()

    assert read(watch) == [1, None, 3]
    world.put("a.csv", text + "4,d,4\n", age=11)
    watch.look()
    assert read(watch) == [1, None, 3, 4]
    assert read(world.start(2)) == [1, None, 3, 4]
    refused_by = world.put("a.csv", text + '4,d,4\n5,e",5\n', age=11)
    assert refused_by.exists()
    watch.look()  # it was decided, and told: the text is not put together any more
    assert read(watch) == [1, None, 3, 4, 5]
    world.put("b.csv", text, age=11)
    watch.look()
    world.put("b.csv", text + '",2\n', age=11)
    with pytest.raises(BraidError, match=r"b\.csv was read when it had no end, and now it goes on"):
        watch.look()


def test_a_changed_file_is_refused(world: World) -> None:
    path = world.put("a.csv", HEAD + "1,a,1\n2,b,2\n")
    other = world.folder / "in" / "b.parquet"
    pl.DataFrame({"k": [3], "v": ["c"], "ts": [3]}).write_parquet(other)
    zipped = world.put("c.jsonl.gz", gzip.compress(b'{"K":4,"TS":4}\n'))
    watch = world.start(up=True)
    kept = {p: p.read_bytes() for p in (path, other, zipped)}

    def changed(p: Path, data: bytes, match: str) -> None:
        world.put(p.name, data)
        refused(world, match, done=4)
        with pytest.raises(BraidError, match=match):
            watch.look()
        world.put(p.name, kept[p])
        assert keys(world.start(4)) == [1, 2, 3, 4]

    changed(path, kept[path].replace(b"1,a", b"1,z"), "its first 19 bytes are no longer")
    changed(path, kept[path].replace(b"1,a", b"1,z") + b"9,z,9\n", "its first 19 bytes are no longer")
    changed(path, kept[path][:-3], "19 bytes were read, 16 are left")
    changed(zipped, gzip.compress(b'{"K":5,"TS":4}\n'), "no longer")
    pl.DataFrame({"k": [3, 4], "v": ["c", "d"], "ts": [3, 4]}).write_parquet(world.folder / "more")
    changed(other, (world.folder / "more").read_bytes(), "a Parquet file does not grow")


@pytest.mark.heavy
def test_a_file_that_grows_is_not_read_again_each_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    real = file_watch.digest_of

    def counted(path: str, start: int = 0, limit: int | None = None) -> str:
        nonlocal read
        read += (os.path.getsize(path) if limit is None else limit) - start
        return real(path, start, limit)

    monkeypatch.setattr(file_watch, "digest_of", counted)
    monkeypatch.setattr(file_watch, "EDGE", 64)
    path = world.put("a.csv", HEAD)
    watch = world.start(up=True)
    for i in range(300):
        with path.open("a") as f:
            f.write(f"{i},x,{i}\n")
        watch.look()
    assert len(keys(watch)) == 300 and read < 4 * path.stat().st_size + 300 * 2 * 64


def test_a_compressed_file_goes_on_by_its_content(world: World) -> None:
    world.put("a.jsonl.gz", gzip.compress(b'{"K":1,"TS":1}\n'))
    world.start()
    world.put("a.jsonl.gz", gzip.compress(b'{"K":1,"TS":1}\n') + gzip.compress(b'{"K":2,"TS":2}\n'))
    assert keys(world.start(1)) == [1, 2]


def test_unfinished_files_are_not_there_yet(world: World) -> None:
    for name in (".a.csv", "_b.csv", "c.csv.tmp", "d.csv.part", "e.tmp"):
        world.put(name, "no")
    (world.folder / "in" / "_temporary").mkdir()
    world.put("_temporary/f.csv", HEAD + "9,z,9\n")
    world.pattern = str(world.folder / "in" / "**")
    watch = world.start(up=True)
    assert keys(watch) == [] and "no file matches" in world.notes[0] and "waits" in world.notes[0]
    os.rename(world.folder / "in" / "c.csv.tmp", world.put("c.csv", HEAD + "1,a,1\n"))
    world.put("c.csv", HEAD + "1,a,1\n")
    watch.look()
    assert keys(watch) == [1]
    shutil.rmtree(world.folder / "q")
    with pytest.raises(BraidError, match="no file matches"):
        World(world.folder, "in/*.parquet").start()
    with pytest.raises(BraidError, match="there is no folder"):
        World(world.folder, "out/*.parquet").start(up=True)


@pytest.mark.parametrize("name", ["b.csv", "b.jsonl", "b.csv.gz", "b.parquet"])
@pytest.mark.parametrize("up", [True, False])
def test_a_file_without_a_byte_is_waited_for(world: World, name: str, up: bool) -> None:
    """Among those of a glob. One that is named alone is read as it is; one that lost its bytes was changed."""
    world.put("a.csv", HEAD + "1,a,1\n")
    path = world.put(name, "")
    watch = world.start(up=up)
    assert keys(watch) == [1] and world.notes == [f"S: {name} is empty yet; it is waited for"]
    assert len(open_files(SOURCE, world.pattern, world.folder / "c").files) == 1
    watch.look()
    assert keys(watch) == [1] and len(world.notes) == 1
    if name == "b.csv":
        world.put(name, HEAD + "2,b,2\n")
        assert keys(world.start(1)) == [1, 2]
        world.put(name, "")
        refused(world, "bytes were read, 0 are left", done=2)
        path.unlink()
        world.put(name, "")
        with pytest.raises(BraidError, match="has no header"):
            World(world.folder, f"in/{name}").start()


def test_a_glob_of_files_without_a_byte_is_no_mistake(world: World) -> None:
    world.put("a.csv", "")
    assert keys(world.start()) == []
    world.put("a.csv", HEAD + "1,a,1\n")
    assert keys(world.start()) == [1]


def test_a_file_that_still_changes_is_not_read_while_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "REST", 0.2)
    watch = world.start(up=True)
    for i in range(3):
        world.put("a.csv", HEAD + "1,a,1\n" * (i + 1), age=-5)  # its clock is ahead of ours
        watch.look()
        assert keys(watch) == []
    while not keys(watch):
        watch.look()
    assert keys(watch) == [1, 1, 1]
    whole = world.folder / "whole"
    pl.DataFrame({"k": [2], "v": ["b"], "ts": [2]}).write_parquet(whole)
    world.put("b.parquet", whole.read_bytes()[:-6])
    zipped = gzip.compress(HEAD.encode() + b"3,c,3\n" * 100)
    world.put("c.csv.gz", zipped[:-9])
    watch.look()
    assert keys(watch) == [1, 1, 1]
    assert [n.partition(": ")[2] for n in world.notes[1:]] == [
        f"{name} is not whole yet; it is waited for" for name in ("b.parquet", "c.csv.gz")
    ]
    world.put("b.parquet", whole.read_bytes())
    world.put("c.csv.gz", zipped)
    watch.look()
    assert keys(watch) == [1, 1, 1, 2, *[3] * 100]


def test_copies_of_what_is_read_for_good_go(world: World) -> None:
    for i in range(3):
        world.put(f"{i}.csv", HEAD + f"{i},x,{i}\n" * 2)
    watch = world.start()
    reader = pickle.loads(pickle.dumps(watch.input))
    reader.ends()
    for rows, left in [(1, 6), (2, 4), (5, 2), (6, 0)]:
        reader.forget(rows)
        assert len(os.listdir(world.folder / "q.files")) == left
    (world.folder / "in" / "0.csv").unlink()
    assert reader.read(0, 2, 6).rows["X.K"].to_list() == [1, 1, 2, 2]  # made again
    with pytest.raises(BraidError, match="is gone"):
        reader.read(0, 0, 1)


def test_files_may_go_when_they_are_read(world: World) -> None:
    for i, name in enumerate(("a.csv", "b.csv")):
        world.put(name, HEAD + f"{i},x,{i}\n")
    watch = world.start(up=True)
    (world.folder / "in" / "a.csv").unlink()
    watch.look()
    shutil.rmtree(world.folder / "in")
    watch.look()
    (world.folder / "in").mkdir()
    world.put("c.csv", HEAD + "2,x,2\n")
    assert world.start(2).input.log.end == 3
    (world.folder / "in" / "c.csv").unlink()
    assert world.start(2, 3).input.log.end == 3  # a batch was given its row, and its copy is there
    shutil.rmtree(world.folder / "q.files")
    refused(world, r"c\.csv is gone before it was read", done=2, planned=3)
    assert world.start(3).input.log.end == 3
    assert world.start(2).input.log.end == 2  # no batch had been given its row: it was never there


def test_a_query_that_starts_anew_names_what_is_gone(world: World) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        world.put(name, HEAD + "1,a,1\n")
    world.start()
    (world.folder / "in" / "a.csv").unlink()
    (world.folder / "in" / "c.csv").unlink()
    assert world.start(3).input.log.end == 3 and not world.notes
    shutil.rmtree(world.folder / "q")
    assert keys(world.start()) == [1]
    assert world.notes == ["S starts without 2 files that were read before and are gone: a.csv, c.csv"]
    world.start(1)
    assert len(world.notes) == 1


def test_what_no_batch_was_given_is_seen_anew(world: World) -> None:
    world.put("a.csv", HEAD + "1,a,1\n")
    world.put("b.csv", HEAD + "x,b,2\n")
    world.start()
    world.put("b.csv", HEAD + "2,b,2\n")  # it was mended before it was read
    assert keys(world.start(1)) == [1, 2]


def test_a_folder_that_has_moved(world: World) -> None:
    world.put("a.csv", HEAD + "1,a,1\n")
    world.start()
    (world.folder / "in").rename(world.folder / "there")
    moved = World(world.folder, "there/*")
    assert keys(moved.start(1)) == [1]
    (world.folder / "there" / "a.csv").rename(world.folder / "in" / "a2.csv")
    refused(World(world.folder, "in/*"), "was read from files in .*there, now from .*in", done=1)
    world.put("a.csv", HEAD + "2,a,1\n")
    refused(World(world.folder, "in/*"), r"a\.csv was changed", done=1)


def test_nothing_comes_behind_an_end(world: World) -> None:
    world.put("a.csv", HEAD + "1,a,1\n")
    world.start()
    assert keys(world.start(1, closed=True)) == [1]
    world.put("b.csv", HEAD + "2,a,1\n")
    refused(world, r"S has more rows, in b\.csv, but it was closed", done=1, closed=True)
    (world.folder / "in" / "b.csv").unlink()
    world.put("a.csv", HEAD + "1,a,1\n2,b,2\n")
    refused(world, r"S has more rows, in a\.csv, but it was closed", done=1, closed=True)


def test_the_log_after_a_crash(world: World) -> None:
    world.put("a.csv", HEAD + "1,a,1\n")
    world.start()
    path = Path(log_path(opened(str(world.folder / "q")), "S"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[1][:40])
    world.put("b.csv", HEAD + "2,b,2\n")
    assert keys(world.start(1)) == [1, 2]
    path.write_bytes(whole.replace(b'"rows":1', b'"rows":2'))
    refused(world, "is damaged", done=1)


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("in/*.csv", "in/a.csv", True),
        ("in/*.csv", "in/out.csv/a.csv", False),
        ("in/**", "in/out.csv/a.csv", True),
        ("in/**/*.csv", "in/a.csv", True),
        ("in/**/*.csv", "in/x/y/a.csv", True),
        ("in/*/*.csv", "in/a.csv", False),
        ("**/*.jsonl", "in/a.csv", False),
    ],
)
def test_what_a_pattern_would_find(tmp_path: Path, pattern: str, path: str, found: bool) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text("")
    assert matches(str(tmp_path / pattern), str(file)) == found
    assert bool(look(str(tmp_path / pattern), empty=True)[1]) == found


def test_pieces_are_the_rows_of_the_files(world: World) -> None:
    """The same files, all at once without a log."""
    for i, name in enumerate(("a.csv", "b.jsonl")):
        world.put(name, HEAD + "1,a,1\n" if i == 0 else json.dumps({"K": 2, "V": "b", "TS": 2}) + "\n")
    whole = open_files(SOURCE, world.pattern, world.folder / "cache")
    assert keys(world.start()) == whole.read(0, 0, 2).rows["X.K"].to_list()


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_large_file_is_made_ready_piece_by_piece(world: World, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is ready can be read while the rest is not, and the next start goes on behind it; a line break between
    quotes ends no piece."""
    monkeypatch.setattr("braid.files.watch.PIECE", 100)
    monkeypatch.setattr("braid.files.text.BLOCK", 64)
    names = [f"{n}\n{n}" if n % 3 == 0 else str(n) for n in range(50)]
    text = HEAD + "".join(f'{n},"{name}",{n}\n' for n, name in enumerate(names))
    if kind == "jsonl":
        text = "".join(json.dumps({"K": n, "V": name, "TS": n}) + "\n" for n, name in enumerate(names))
    world.put(f"a.{kind}", text)
    whole = rows(world.start())
    shutil.rmtree(world.folder / "q")
    watch = FileWatch(SOURCE, Files(world.pattern), opened(world.folder / "q"), note=world.notes.append)
    watch.check()
    watch.begin()
    seen = pickle.loads(pickle.dumps(watch.input))
    assert seen.comes() and not seen.ends()[0]
    assert watch.read_on() and watch.read_on() and seen.comes()
    some = seen.ends()[0]
    assert 0 < some < 50 and watch.reached() == some - 1
    watch.leave()
    assert seen.comes() and seen.is_left()
    again = world.start(some)
    assert len(again.input.log.pieces) > 2 and not again.input.comes()
    assert rows(again) == whole and len(whole) == 50
    assert rows(world.start(50)) == whole  # nothing is read twice


def test_shares_are_the_same_in_another_process(world: World) -> None:
    """Whoever plans after a restart has read nothing of the log yet: positions of a batch that is done again are those
    of the first time."""
    from braid.spark.source import Part, divided

    world.put("a.csv", "k,v,ts\n" + "".join(f"{n},x,{9 * n % 50}\n" for n in range(50)))
    watch = world.start()
    part = Part(0, 0, 0, 50, True, False, False)
    shares = divided([part], {0: watch.input}, 5, few=1)
    times = [9 * n % 50 for n in range(50)]
    assert [x.first for x in shares] == [0, 10, 20, 30, 40] and [x.ended for x in shares] == [False] * 4 + [True]
    assert [x.floor for x in shares[1:]] == [max(times[: x.first]) for x in shares[1:]]
    assert divided([part], {0: pickle.loads(pickle.dumps(watch.input))}, 5, few=1) == shares
