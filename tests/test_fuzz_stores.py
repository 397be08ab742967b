"""Hostile stores: every command that reads one is done, or refused with one error, in bounded time and memory.

`hostile_stores.py` makes them; here it is given little memory, and the examples that its randomness was made from.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from braid.errors import BraidError, escaped
from braid.store import opened as store_in
from braid.topics import TopicStore, files
from cli_help import braid
from effort import examples, fuzzed

pytest.importorskip("pyspark")

import hostile_stores
from hostile_stores import ESCAPE, RECORD, TEXTS, well_said
from sums import loaded, with_sum

pytestmark = pytest.mark.heavy

HELP = Path(hostile_stores.__file__)
CHUNKS = 4


def little_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (hostile_stores.MEMORY, hostile_stores.MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@pytest.mark.parametrize("chunk", range(examples(CHUNKS, 2)))
def test_commands_on_a_hostile_store(chunk: int, tmp_path: Path) -> None:
    count = fuzzed(CHUNKS, 20) // CHUNKS
    words = [sys.executable, str(HELP), str(chunk), str(count), str(tmp_path)]
    done = subprocess.run(
        words, capture_output=True, text=True, errors="replace", preexec_fn=little_memory, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-5000:]}\n{done.stderr[-5000:]}"


# ---------------------------------------------------------------------- examples


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`s` in the current folder, with a topic `t` of one partition and one record; its folder."""
    monkeypatch.chdir(tmp_path)
    braid("put", "t", "--store", "s", stdin=RECORD)
    return tmp_path / "s"


def refused(*words: str, stdin: str = "") -> str:
    """What is said of a store that cannot be read: in one error, whose first line is given."""
    said = braid(*words, "--store", "s", stdin=stdin)
    assert said.code == 1 and well_said(said.code, said.out, said.err) is None, said
    return said.err.splitlines()[0]


READING = (("topics",), ("cat", "t"), ("put", "t"))


def no_description(topic: Path) -> str:
    (topic / "topic.json").unlink()
    return "topic.json is missing, and commits are there"


def no_partition(topic: Path) -> str:
    (topic / "topic.json").unlink()
    shutil.rmtree(topic / ".commits")
    (topic / "1000000000").mkdir()
    return "t/1000000000 is no partition"


def no_line_end(topic: Path) -> str:
    path = topic / "0" / f"{1:020d}.jsonl"
    path.touch()
    os.truncate(path, 20 << 30)
    return f"{path.name} has a line of more than 16 MiB"


def pipe(topic: Path) -> str:
    (topic / "topic.json").unlink()
    os.mkfifo(topic / "topic.json")
    return "topic.json is not a plain file"


def large(topic: Path) -> str:
    os.truncate(topic / "topic.json", 20 << 30)
    return f"topic.json has {20 << 30} bytes"


def large_commit(topic: Path) -> str:
    os.truncate(topic / ".commits" / f"{1:020d}.json", 6 << 30)
    return f"{1:020d}.json has {6 << 30} bytes"


def many_partitions(topic: Path) -> str:
    (topic / "topic.json").write_text('{"format": 1, "partitions": 1000000000, "id": "x"}')
    return "topic.json is damaged: partitions is not from 1 to 10000"


def nested(topic: Path) -> str:
    (topic / "topic.json").write_text("[" * 60_000)
    return "topic.json is damaged: it is nested too deeply"


def negative(topic: Path) -> str:
    path = topic / ".commits" / f"{1:020d}.json"
    x = loaded(path)
    x["segments"][0]["partition"] = -1
    path.write_bytes(with_sum(x))
    return f"{path.name} is damaged: partition is not from 0 to"


def of_rollups(topic: Path) -> str:
    path = topic / ".commits" / f"{0:020d}-{1:020d}.rollup.json"
    known = {"format": 3, "from": 0, "to": 1, "topic": loaded(topic / "topic.json")["id"]}
    path.write_bytes(with_sum(known | {"segments": [], "queries": {"q": "0"}, "extras": []}))
    return f"{path.name} is damaged: batch is no whole number"


SPOILT = (
    no_description, no_partition, no_line_end, pipe, large, large_commit, many_partitions, nested, negative, of_rollups,
)  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda f: f.__name__)
def test_what_is_wrong_is_named(spoil: Callable[[Path], str], store: Path) -> None:
    told = spoil(store / "topics/t")
    for words in READING:
        assert told in refused(*words, stdin=RECORD), words


def test_a_commit_cannot_promise_what_no_file_has(store: Path) -> None:
    """Neither a line of 20 GB nor 2^60 lines; nor an index that leads elsewhere."""
    path = store / "topics/t/.commits" / f"{1:020d}.json"
    x = loaded(path)
    size = x["segments"][0]["size"]
    lies = (
        {"size": 20 << 30},
        {"count": 1 << 60},
        {"count": size + 1},
        {"starts": [0, 5], "highs": [1, 1]},
        {"starts": [7]},
        {"highs": [1 << 70]},
        {"count": 8193, "size": 9000, "starts": [0, -1], "highs": [1, 1]},
        {"count": 8193, "size": 9000, "starts": [0, 0], "highs": [1, 1]},
        {"crc32": "-0000001"},
        {"min": "x"},
    )
    for lie in lies:
        path.write_bytes(with_sum({**x, "segments": [{**x["segments"][0], **lie}]}))
        assert f"{path.name} is damaged" in refused("cat", "t"), lie


def test_many_long_lines_are_read_a_few_at_a_time(store: Path) -> None:
    """A sparse file of lines of 15 MB each: as many as fit are shown, no more are held."""
    path = store / "topics/t/0" / f"{1:020d}.jsonl"
    with open(path, "wb") as f:
        for i in range(1, 13):
            f.seek(i * (15 << 20))
            f.write(b"\n")
    words = [sys.executable, "-m", "braid", "cat", "t", "--limit", "2", "--format", "jsonl", "--store", str(store)]
    done = subprocess.run(words, capture_output=True, preexec_fn=little_memory, check=False)
    assert done.returncode == 0 and done.stdout.count(b"\n") == 2, done.stderr[-2000:]


def test_a_terminal_shows_what_it_is_given(store: Path) -> None:
    """Keys, values, names of files and of columns; JSON lines mean the same."""
    line = json.dumps({"key": ESCAPE, "value": {ESCAPE: ESCAPE}, "timestamp": 1})
    braid("put", "t", "--store", "s", stdin=line)
    (store / "drops" / "q").mkdir(parents=True)
    (store / "drops" / ESCAPE.replace("/", "")).mkdir()
    (store / "drops/q/a.jsonl").write_text(json.dumps({"reason": ESCAPE, "operator": None, "message": ESCAPE}) + "\n")
    for words in (("cat", "t"), ("cat", "t", "--format", "jsonl"), ("drops", "q"), ("drops", "q", "--format", "jsonl")):
        said = braid(*words, "--store", "s")
        assert said.code == 0 and well_said(0, said.out, said.err) is None, said
    last = braid("cat", "t", "--format", "jsonl", "--store", "s").out.splitlines()[-1]
    assert json.loads(last)["value"] == {ESCAPE: ESCAPE}
    assert "\\x1b[2J" in braid("cat", "t", "--store", "s").out
    assert "no query x" in refused("drops", "x")
    said = braid("run", f"{ESCAPE}.sql")
    assert said.code == 1 and well_said(1, said.out, said.err) is None
    assert escaped('"\x7f"') == '"\\u007f"'


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_damaged_drop_is_named(text: bytes, store: Path) -> None:
    folder = store / "drops/q"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(text)
    said = braid("drops", "q", "--store", "s")
    assert well_said(said.code, said.out, said.err) is None
    assert "drops/q/a.jsonl is damaged" in said.err


def test_a_document_is_what_it_should_be(tmp_path: Path) -> None:
    for text in (b"NaN", b"Infinity", b"[1, -Infinity]", b"[" * 10**6, b"9" * 5000, b"[" * 200 + b"]" * 200):
        with pytest.raises(ValueError):
            files.parsed(text)
    assert files.parsed(b"[" * 50 + b"]" * 50)
    for x in (True, 1.0, "1", None, -1, 1 << 63):
        with pytest.raises(ValueError):
            files.whole(x, "it")
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert files.read_small(str(path), 5) == b"12345"
    with pytest.raises(BraidError, match="has 5 bytes"):
        files.read_small(str(path), 4)


def test_what_held_before_still_holds(store: Path) -> None:
    """Quoted names, a commit's checksum, records beside a reader."""
    opened = TopicStore(store_in(store))
    assert braid("cat", "t", "--store", "s").code == 0
    with open(store / "topics/t/0" / f"{0:020d}.jsonl", "r+b") as f:
        f.write(b"[")
    assert "its checksum is" in refused("cat", "t")
    assert opened.end_offsets("t") == [1]


def test_no_line_is_written_that_could_not_be_read(store: Path) -> None:
    record = json.dumps({"key": 1, "value": {"V": "x" * (16 << 20)}, "timestamp": 1})
    assert "for the topic 't'" in refused("put", "t", stdin=record)
    assert TopicStore(store_in(store)).end_offsets("t") == [1] and not list((store / "topics/t/.staging").iterdir())


@pytest.mark.parametrize("depth", [90, 500, 900, 950, 990, 1000, 5000, 100_000])
def test_records_may_be_nested(depth: int, store: Path) -> None:
    """Shown as they are, or as malformed; the next record is read."""
    path = store / "topics/t/0" / f"{1:020d}.jsonl"
    for opening, end in (("[", "]"), ('{"a":', "}")):
        value = opening * depth + "1" + end * depth
        path.write_text(f'{{"key":1,"value":{value},"timestamp":2}}\n{RECORD}')
        for form in ("table", "jsonl", "csv"):
            said = braid("cat", "t", "--store", "s", "--format", form)
            lines = said.out.splitlines()  # one is wider than the table
            assert said.code == 0 and len(lines) >= 3 + (form != "jsonl") and "a" in lines[-1], said
        for dialect, text in (("ksqldb", hostile_stores.FOLLOWED), ("risingwave", hostile_stores.ASKED)):
            asked = text.replace(" l ", " t ").replace("'l'", "'t'").replace(" l;", " t;").replace(", partitions=2", "")
            said = braid("sql", "--store", "s", "--dialect", dialect, stdin=asked)
            assert said.code == 0 and well_said(0, said.out, said.err) is None, said
        shutil.rmtree(store / "catalogue", ignore_errors=True)
        path.unlink()
        for commit in sorted((store / "topics/t/.commits").iterdir())[1:]:
            commit.unlink()
