"""Names and command lines that no one should write: refused with one message, and nothing lies where it should not.

Names of topics, queries, stores and sinks: paths, links, control characters, other alphabets, nothing at all. Whatever
is done with them happens in a folder whose surroundings are compared before and after.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from braid.errors import BraidError
from braid.store import opened
from braid.topics import TopicStore, stage_path
from braid.topics.drops import read_drops, stage_drops
from cli_help import braid
from effort import fuzzed

pytestmark = pytest.mark.heavy

PARTS = (
    *("..", ".", "/", "\\", "a", "b", "~", "$HOME", "%2e", "%2f", "\0", "\n", "\r", "\x1b[2J", "\t", " ", "*", "?"),
    *("|", ";", "`", "'", '"', "<", ">", ":", "&", "é", "e\u0301", "ａ", "／", "․․", "\u202e", "\u200b", "名", "[a]"),
    *("CON", "NUL", ".staging", ".commits", "topic.json", ".lock", "0", "-", "--", "-rf", "_", "x" * 300, "\udcff"),
)  # fmt: skip
ODD = (
    "",
    ".",
    "..",
    "../x",
    "/etc/passwd",
    "//x",
    "a/b",
    "a\\b",
    "a\0b",
    "\n",
    "x" * 201,
    "ａ",
    "../../../../tmp/x",
    "link",
    "link/x",
    "a/../..",
)


def names(seed: str, count: int) -> Iterator[str]:
    yield from ODD
    r = random.Random(seed)
    for _ in range(count):
        yield "".join(r.choice(PARTS) for _ in range(r.choice((1, 1, 2, 3, 5))))


def is_plain(name: str) -> bool:
    """What the store takes, said once more: letters, digits, '.', '_', '-', up to 200 of them, and no path."""
    return (
        0 < len(name) <= 200
        and name not in (".", "..")
        and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    )


def files(folder: Path) -> set[str]:
    return {os.path.relpath(os.path.join(at, x), folder) for at, ds, fs in os.walk(folder) for x in (*ds, *fs)}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store in it, `work/store`, whose `topics` holds a link out of it."""
    (tmp_path / "work" / "store" / "topics").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "work" / "store" / "topics" / "link").symlink_to(tmp_path / "outside")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def test_a_name_stays_in_the_store_or_is_refused(home: Path) -> None:
    store = TopicStore(opened(home / "work" / "store"))
    some = pl.DataFrame({"reason": ["late"]})
    deeds: dict[str, Callable[[str], object]] = {
        "create": store.create,
        "append": lambda n: store.append(n, [{"key": 1, "value": None, "timestamp": 0}]),
        "read": lambda n: store.read(n, 0, 0, 1),
        "delete": store.delete,
        "query": lambda n: store.append("fine", [{"key": 1, "value": None, "timestamp": 0}], query=n, batch=0),
        "stage": lambda n: stage_path(store.topic("fine").staging, n, 0, 0),
        "drops": lambda n: stage_drops(store.root, n, 0, 0, some),
        "show": lambda n: read_drops(store.root, n),
    }
    store.create("fine")
    before = files(home)
    for name in names("names", fuzzed(60, len(deeds))):
        for what, deed in deeds.items():
            try:
                deed(name)
            except BraidError as e:
                assert e.message and "\n" not in e.message and "\0" not in e.message, (what, name)
            else:
                assert is_plain(name), (what, name)
    new = {n for n in files(home) - before if not n.startswith("work/store/")}
    assert not new
    assert not files(home / "outside")
    beside = {n.split("/")[2] for n in files(home) if n.startswith("work/store/")}
    assert beside <= {"topics", "drops", ".scratch", ".topics.lock"}


STREAM = "CREATE STREAM s (k INT) WITH (kafka_topic='{}', value_format='JSON', partitions=1);"
FILE = "CREATE STREAM s (k INT) WITH (kafka_topic='t', value_format='JSON');"
LINES = (
    ("topics", "--store", "{}"),
    ("cat", "{}"),
    ("cat", "{}", "--store", "{}"),
    ("put", "{}", "--partitions", "2"),
    ("put", "{}", "{}"),
    ("drops", "{}"),
    ("check", "{}"),
    ("check", "-e", "{}"),
    ("explain", "-e", f"{STREAM} {{}}"),
    ("explain", "--state", "--store", "{}", "{}"),
    ("explain", "-e", "{}", "--format", "{}"),
    ("run", "{}"),
    ("run", "-e", STREAM, "--sink", "s={}"),
    ("run", "-e", "SELECT 1;", "--source", "{}"),
    ("run", "-e", FILE, "--source", "s={}", "--sink", "{}"),
    ("test", "{}"),
    ("sql", "--dialect", "{}"),
    ("{}",),
    ("{}", "{}"),
    ("--{}",),
)
TYPED = (
    '{"key":1,"value":null,"timestamp":0}',
    "\n",
    "{",
    "[" * 3000,
    "9" * 5000,
    '{"key":"\\ud800","value":1,"timestamp":0}',
)


def test_a_command_line_is_carried_out_or_refused_in_one_message(home: Path) -> None:
    """Nothing of it is ever a stack trace (`cli_help` looks for one), nor an internal error (exit 2)."""
    before = files(home)
    r = random.Random("lines")
    for name in names("words", fuzzed(60)):
        words = [w.replace("{}", name).replace("\0", "") for w in r.choice(LINES)]  # no system takes a NUL there
        text = "".join(r.choice(TYPED) for _ in range(3))
        said = braid(*words, stdin=text)
        assert said.code in (0, 1), (words, said)
        if said.code:
            assert said.err.strip(), words
        written = {n for n in files(home) - before if not f"{n}/".startswith(("work/store/", "work/braid-data/"))}
        assert not written, words
