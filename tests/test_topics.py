"""The topic store: real files, crashes between any two steps, readers while others write."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from braid.errors import BraidError
from braid.store import opened
from braid.topics import (
    Staged,
    StoreLock,
    TopicStore,
    check_name,
    check_new_name,
    clean_staging,
    drops,
    envelope,
    files,
    format_envelope,
    holder,
    log,
    object_topics,
    parse_envelope,
    publish,
    read_records,
    rollup,
    segments,
    stage,
)
from braid.topics.object_topic_store import ObjectTopicStore
from braid.topics.reading import read
from braid.types import MAX_TIME
from effort import examples
from sums import loaded, with_sum

QUICK = settings(max_examples=examples(40))


@pytest.fixture
def store(tmp_path: Path) -> TopicStore:
    return TopicStore(opened(tmp_path))


@pytest.fixture(params=["folder", "room"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> TopicStore:
    """A store in a folder, and one in a room of `store/`. (In an object store: `objects/test_object_topics.py`.)"""
    return TopicStore(opened(tmp_path)) if request.param == "folder" else ObjectTopicStore(opened(str(tmp_path)))


@pytest.fixture(autouse=True)
def _in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is folded beside what goes on is folded at once, but where a test says otherwise."""
    monkeypatch.setattr(object_topics, "BESIDE", False)


def again(store: TopicStore) -> TopicStore:
    """The same store, for a process that has seen nothing yet."""
    made: TopicStore = pickle.loads(pickle.dumps(store))
    return made


def record(i: int, t: int | None = None, partition: int = 0) -> dict[str, Any]:
    return {"key": i, "value": {"V": f"v{i}"}, "timestamp": i if t is None else t, "partition": partition}


def lines_of(numbers: list[int]) -> pl.Series:
    texts = pl.Series([str(i) for i in numbers], dtype=pl.String)
    return format_envelope(texts, texts, pl.Series(numbers, dtype=pl.Int64))


def values(store: TopicStore, name: str) -> list[list[Any]]:
    """The values of each partition, read by a process that has seen nothing yet."""
    fresh = again(store)
    found: list[list[Any]] = [[] for _ in range(fresh.partitions(name))]
    for r in read_records(fresh.topic(name)):
        assert r["offset"] == len(found[r["partition"]])
        found[r["partition"]].append(r["value"])
    return found


# -- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "a\\b", "a b", "é", "x" * 201, "a\n", "a~b", "/"])
def test_bad_names(name: str, store: TopicStore) -> None:
    with pytest.raises(BraidError) as e:
        check_name(name)
    assert e.value.hint
    for call in (store.create, store.exists, store.end_offsets, store.delete):
        with pytest.raises(BraidError):
            call(name)


def test_names_that_differ_by_case(store: TopicStore) -> None:
    assert check_name("a.B-c_9") == "a.B-c_9"
    store.create("Orders")
    apart = not os.path.exists(store.topic("Orders").path.replace("Orders", "orders"))  # a file system that tells case
    if apart:
        store.create("orders")
    else:
        with pytest.raises(BraidError, match="only by case"):
            store.create("orders")
    with pytest.raises(BraidError, match="only by case"):
        check_new_name("ORDERS", ["Orders"])
    assert store.names() == ["Orders", "orders"][: 1 + apart]


# -- envelopes ----------------------------------------------------------------------------------------------------

numbers = st.one_of(
    st.integers().map(str),
    st.sampled_from(["0.10", "-0", "1e5", "1.000000000000000000001", "123456789012345678901234567890.5", "1E-7"]),
)
names = st.sampled_from(["a", "key", "value", "timestamp", "headers", "window", "ß", 'q"', "\\", "}", ',"value":'])
texts = st.text(max_size=8) | names


def json_text(leaf: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def deeper(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        members = st.lists(st.tuples(names, inner), max_size=3)
        objects = members.map(lambda ms: "{" + ",".join(f"{json.dumps(n)}:{v}" for n, v in ms) + "}")
        spaced = members.map(lambda ms: "{ " + " , ".join(f"{json.dumps(n)} : {v}" for n, v in ms) + "}")
        return objects | spaced | st.lists(inner, max_size=3).map(lambda xs: "[" + ", ".join(xs) + "]")

    return st.recursive(leaf, deeper, max_leaves=6)


any_json = json_text(
    numbers
    | st.sampled_from(["null", "true", "false"])
    | texts.map(json.dumps)
    | texts.map(lambda s: json.dumps(s, ensure_ascii=False))
)
header_texts = st.lists(st.tuples(texts, st.sampled_from(["YQ==", ""])), max_size=2).map(json.dumps)
ints64 = st.integers(-(2**63), 2**63 - 1)
times = st.integers(-MAX_TIME, MAX_TIME - 1)


@st.composite
def envelopes(draw: st.DrawFn) -> tuple[dict[str, str], str]:
    members = {"key": draw(any_json), "value": draw(any_json), "timestamp": str(draw(times))}
    if draw(st.booleans()):
        members["headers"] = draw(header_texts)
    if draw(st.booleans()):
        members["window"] = f"[{draw(ints64)}, {draw(st.none() | ints64)}]".replace("None", "null")
    order = list(members)
    if draw(st.booleans()):
        order = draw(st.permutations(order))
    colon, comma, opening = draw(st.sampled_from([(":", ",", "{"), (": ", ", ", "{"), (" :\t", "  ,", " { ")]))
    text = opening + comma.join(f'"{n}"{colon}{members[n]}' for n in order) + "}"
    return members, text


@QUICK
@given(st.lists(envelopes(), min_size=1, max_size=5))
def test_envelopes_keep_their_text(drawn: list[tuple[dict[str, str], str]]) -> None:
    parsed = parse_envelope(pl.Series([text for _, text in drawn]))
    assert parsed.schema == envelope.ENVELOPE
    for row, (members, text) in zip(parsed.iter_rows(named=True), drawn, strict=True):
        assert json.loads(text).keys() == members.keys()
        assert row["error"] is None, (row, text)
        assert row["_t"] == int(members["timestamp"])
        for column, name in (("_key", "key"), ("_value", "value"), ("_headers", "headers")):
            assert row[column] == (None if members.get(name, "null") == "null" else members[name])
        window = json.loads(members["window"]) if "window" in members else None
        assert row["_window"] == (window and {"start": window[0], "end": window[1]})


@QUICK
@given(envelopes(), st.data())
def test_broken_lines_are_errors_and_no_exceptions(drawn: tuple[dict[str, str], str], data: st.DataObject) -> None:
    text = drawn[1]
    at = data.draw(st.integers(0, len(text) - 1))
    broken = data.draw(
        st.sampled_from([text[:at], text[:at] + text[at + 1 :], text[:at] + '"' + text[at:], text + "}"])
    )
    row = parse_envelope(pl.Series([broken])).row(0, named=True)
    if row["error"] is None:
        # The envelope was told apart. Then the pieces are what a JSON parser finds, or the line has no meaning at all.
        try:
            whole = json.loads(broken, parse_float=str, parse_int=str)
        except ValueError:
            return
        for column, name in (("_key", "key"), ("_value", "value")):
            piece = None if row[column] is None else json.loads(row[column], parse_float=str, parse_int=str)
            assert piece == whole.get(name)
        assert str(row["_t"]) == whole["timestamp"]


@pytest.mark.parametrize(
    ("line", "time", "value", "error"),
    [
        ('{"key":1,"value":{"a":1.10},"timestamp":5}', 5, '{"a":1.10}', None),
        ('{"timestamp":5,"value":{"timestamp":9},"key":1}', 5, '{"timestamp":9}', None),
        ('{"value":{"a":1},"timestamp":5}', 5, '{"a":1}', None),
        ('{"key":1,"value":null,"timestamp":5}', 5, None, None),
        ('{"key":1,"value":2,"value":3,"timestamp":5}', 5, "3", None),
        ('{"key":1,"value":{"a":1},"other":{"b":2},"timestamp":5}', 5, '{"a":1}', None),
        ('{"key":1,"value":{"timestamp":7},"timestamp":5,"headers":[],"window":[1,2]}', 5, '{"timestamp":7}', None),
        ('{"key":1,"value":{"a":tru},"timestamp":5}', 5, '{"a":tru}', None),  # the value's reader will tell
        ('{"key": 1, "value": {"a":tru}}', None, None, "malformed value"),
        ('{"timestamp":5,"key":1,"value":{"a":tru}}', 5, None, "malformed value"),
        ('{"key":1,"value":{"a":{"b":[tru]}},"headers":[],"timestamp":5}', 5, None, "malformed value"),
        ('{"key":1,"value":{"a":1}}', None, None, "no timestamp"),
        ('{"key":1,"value":1,"timestamp":null}', None, None, "no timestamp"),
        ('{"key":1,"value":1,"timestamp":5.5}', None, None, "whole number"),
        ('{"key":1,"value":1,"timestamp":"5"}', None, None, "whole number"),
        ('{"key":1,"value":1,"timestamp":9223372036854775808}', None, None, "whole number"),
        ('{"key":1,"value":1,"timestamp":007}', None, None, "malformed"),
        ('{"key":1,"timestamp":5}', 5, None, 'no "value"'),
        ('{"key":1,"value":1,"timestamp":5,"window":[1]}', 5, "1", "window"),
        ('{"key":1,"value":1,"timestamp":5,"headers":{}}', 5, "1", "headers"),
        ('{"key":NaN,"value":1,"timestamp":5}', None, None, "malformed key"),
        ("[1]", None, None, "object"),
        ("{}", None, None, "no timestamp"),
        ("{", None, None, "early"),
        ('éééééé,"value":1,"timestamp":5}', None, None, "object"),
        ('{"key":1,"value":1,"timestamp":é', None, None, "malformed"),
        ('{"key":1,"value":"é","timestamp":5,"window":é}', None, None, "malformed"),
        ('{"key":1,"value":1,"timestamp":5} 1', None, None, "more than one"),
        ("", None, None, "blank"),
        (None, None, None, "UTF-8"),
    ],
)
def test_envelope_cases(line: str | None, time: int | None, value: str | None, error: str | None) -> None:
    row = parse_envelope(pl.Series([line], dtype=pl.String)).row(0, named=True)
    assert row["_t"] == time
    if error is None:
        assert (row["error"], row["_value"]) == (None, value)
    else:
        assert error in row["error"]


def test_envelope_deep_and_long() -> None:
    deep = "[" * 50 + "]" * 50
    too_deep = "[" * 200_000
    lines = [f'{{"key":1,"value":{v},"timestamp":5}}' for v in (deep, "9" * 6000, too_deep)]
    parsed = parse_envelope(pl.Series(lines))
    assert parsed["_value"][:2].to_list() == [deep, "9" * 6000]
    assert parsed["error"].is_null().to_list() == [True, True, False]
    assert parse_envelope(pl.Series([], dtype=pl.String)).schema == envelope.ENVELOPE


def test_lines_of_all_kinds_keep_their_order() -> None:
    kinds = (' { "key" : 0,"value":1,"timestamp":%d}', '{"key":0,"timestamp":%d,"value":1}')
    kinds += ('{"key":0,"value":1,"timestamp":%d}', '{"key": 0, "value": 1, "timestamp": %d, "headers": []}')
    lines = [kinds[i % len(kinds)] % i for i in range(40)] + [kinds[i % 2] % i for i in range(40, 50)]
    assert parse_envelope(pl.Series(lines))["_t"].to_list() == list(range(50))


def test_format_is_columnar_and_exact() -> None:
    keys, vals = pl.Series(["1", None]), pl.Series(['{"d":\n1.10}', None])
    headers = pl.Series([None, '[["h","YQ=="]]'])
    windows = pl.Series([{"start": 1, "end": None}, None], dtype=envelope.WINDOW)
    lines = format_envelope(keys, vals, pl.Series([1, 2]), headers, windows)
    assert lines.to_list() == [
        '{"key":1,"value":{"d": 1.10},"timestamp":1,"window":[1,null]}',
        '{"key":null,"value":null,"timestamp":2,"headers":[["h","YQ=="]]}',
    ]
    assert parse_envelope(lines)["error"].is_null().all()


# -- reading and writing ------------------------------------------------------------------------------------------


def test_append_and_read(anywhere: TopicStore) -> None:
    store = anywhere
    store.create("t", 2)
    store.create("t", 2)
    with pytest.raises(BraidError, match="has 2 partitions"):
        store.create("t", 3)
    store.append("t", [record(0), record(1, partition=1), record(2)])
    assert store.append("t", [record(3)], query="insert.1", batch=0)
    assert not store.append("t", [record(3)], query="insert.1", batch=0)
    assert store.end_offsets("t") == [3, 1]
    frame = store.read("t", 0, 1, 99)
    assert frame["_offset"].to_list() == [1, 2]
    assert frame["_line"][1] == '{"key":3,"value":{"V":"v3"},"timestamp":3}'
    assert store.read("t", 0, 3, 3).schema == {"_offset": pl.Int64, "_line": pl.String, "_raw": pl.Binary}
    assert values(store, "t")[0] == [{"V": "v0"}, {"V": "v2"}, {"V": "v3"}]
    with pytest.raises(BraidError, match="none with number 2"):
        store.read("t", 2, 0, 1)
    with pytest.raises(BraidError, match="none with number 7"):
        store.append("t", [record(1, partition=7)])
    with pytest.raises(BraidError, match="no topic 'u'"):
        store.end_offsets("u")
    assert not os.listdir(store.topic("t").staging)


def test_odd_lines_keep_their_offsets(store: TopicStore, tmp_path: Path) -> None:
    store.create("t")
    good = b'{"key":1,"value":1,"timestamp":7}'
    data = b"\n".join([good + b"\r", b"", b"{\xff}", b"  ", b"nonsense", good])
    drop_in(tmp_path / "topics/t/0", 0, data)
    assert store.end_offsets("t") == [6]
    frame = store.read("t", 0, 0, 6)
    text = good.decode()
    assert frame["_line"].to_list() == [text, None, None, None, "nonsense", text]
    assert frame["_raw"].to_list() == [None, b"", b"{\xff}", b"  ", None, None]
    for first in range(6):
        assert store.read("t", 0, first, 6).equals(frame.slice(first))
    records = read_records(store.topic("t"))
    assert [r.get("value") for r in records] == [1, None, None, None, None, 1]
    assert records[4]["error"] and records[4]["raw"] == "nonsense"


@contextmanager
def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    sizes: list[int] = []
    original = segments.read_bytes

    def read(*args: Any) -> bytes:
        data = original(*args)
        sizes.append(data.count(b"\n"))
        return data

    with monkeypatch.context() as m:
        m.setattr("braid.topics.reading.read_bytes", read)
        yield sizes


def test_long_segments_are_read_in_part(anywhere: TopicStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = anywhere
    store.create("t")
    times = [*range(20_000), *range(5_000)]
    for batch, part in enumerate((times, [9, 30_000], [1] * 10)):
        publish(store.topic("t"), "q", batch, [stage(store.topic("t"), "q", batch, 0, lines_of(part))])
    whole = [*times, 9, 30_000, *[1] * 10]
    for first, last in (
        (0, 25_012),
        (8191, 8193),
        (8192, 16_384),
        (16_384, 25_001),
        (24_999, 25_003),
        (25_011, 25_012),
    ):
        found = parse_envelope(store.read("t", 0, first, last)["_line"])["_t"].to_list()
        assert found == whole[first:last]
    with counted_reads(monkeypatch) as sizes:
        for first in (24_999, 8192, 3):
            assert store.read("t", 0, first, first + 3).height == 3
    assert sum(sizes) < 40_000


def test_a_frame_with_everything(store: TopicStore) -> None:
    store.create("t", 2)
    frame = pl.DataFrame(
        {
            "_key": ['"a"', None],
            "_value": ['{"D":1.10}', None],
            "_t": [1, 2],
            "_headers": ['[["h","YQ=="]]', None],
            "_window": pl.Series([None, {"start": 0, "end": 5}], dtype=envelope.WINDOW),
            "_partition": [1, 0],
            "seq": [10, 11],
            "hops": [0, 1],
            "n": [0, 3],
        }
    )
    store.append("t", frame)
    store.append("t", [record(1)])
    store.append("t", frame)
    assert (
        store.read("t", 1, 0, 1)["_line"][0] == '{"key":"a","value":{"D":1.10},"timestamp":1,"headers":[["h","YQ=="]]}'
    )
    positions = store.read_positions("t", 0, 0, 9)
    assert positions.rows() == [(0, 11, 1, 3), (1, None, None, None), (2, 11, 1, 3)]
    assert store.read_positions("t", 0, 2, 3).rows() == [(2, 11, 1, 3)]
    assert store.read_positions("t", 1, 0, 0).height == 0
    assert store.end_offsets("t") == [3, 2]


def test_delete_and_create_again(anywhere: TopicStore) -> None:
    store, other = anywhere, again(anywhere)
    store.create("t")
    store.append("t", [record(1), record(2)])
    assert other.end_offsets("t") == [2]
    store.delete("t")
    assert not store.exists("t")
    time.sleep(2 * object_topics.SELDOM)
    with pytest.raises(BraidError, match="no topic"):
        other.end_offsets("t")
    store.create("t", 2)
    store.append("t", [record(5)])
    time.sleep(2 * object_topics.SELDOM)
    assert other.end_offsets("t") == [1, 0]
    assert read_records(other.topic("t"))[0]["value"] == {"V": "v5"}
    assert pickle.loads(pickle.dumps(store)).end_offsets("t") == [1, 0]


def test_looking_without_news_is_cheap(store: TopicStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create("t")
    for i in range(3):
        store.append("t", [record(i)])
    store.end_offsets("t")
    time.sleep(0.12)
    store.end_offsets("t")

    def refuse(*_: object) -> Any:
        raise AssertionError("a look without news reads nothing")

    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(log.Topic, "_look", refuse)
    assert store.end_offsets("t") == [3]


# -- publishing ---------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process dies here."""


@contextmanager
def crash_at(step: int) -> Iterator[list[str]]:
    """The process dies at the `step`-th crash point it reaches."""
    seen: list[str] = []

    def hook(point: str) -> None:
        seen.append(point)
        if len(seen) == step + 1:
            raise Crash(point)

    files.crash_hook = hook
    try:
        yield seen
    finally:
        files.crash_hook = None


def one_batch(store: TopicStore, batch: int, rows: list[list[int]], beside: bool) -> bool:
    """What a query does for one batch: tasks stage, the driver publishes."""
    topic = store.topic("t")
    staged = []
    for p, numbers in enumerate(rows):
        positions = pl.DataFrame({"seq": numbers, "hops": 0, "n": 0}, schema=None) if beside else None
        staged.append(stage(topic, "q", batch, p, lines_of(numbers), positions=positions))
    staged = [Staged.from_json(s.to_json()) for s in staged]
    return publish(topic, "q", batch, staged)


batches = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=1, max_size=9)


@pytest.mark.heavy
@settings(QUICK, max_examples=examples(20))
@given(batches, st.lists(st.integers(0, 40), max_size=4), st.booleans())
@example([[1, 2]] * 9, [3, 5, 9, 4], True)
@example([[1, 1]] * 9, [30, 8, 2, 7], False)
@example([[0, 1], [0, 0], [1, 0], [0, 0], [0, 1], [0, 0], [0, 1], [0, 0], [0, 1]], [21, 24, 7], False)
@example([[0, 3], [3, 3], [1, 1], [0, 2], [0, 1], [0, 3], [3, 0], [0, 2], [0, 1]], [21, 40, 18, 11], False)
def test_a_crash_between_any_two_steps(sizes: list[list[int]], crashes: list[int], beside: bool) -> None:
    with TemporaryDirectory() as folder:
        check_crashes(TopicStore(opened(folder)), sizes, crashes, beside)


@pytest.mark.heavy
@settings(QUICK, max_examples=examples(20))
@given(batches, st.lists(st.integers(0, 40), max_size=4))
@example([[1, 2]] * 9, [3, 5, 9, 4])
@example([[1, 1]] * 9, [30, 8, 2, 7])
def test_a_crash_between_any_two_steps_in_a_room(sizes: list[list[int]], crashes: list[int]) -> None:
    with TemporaryDirectory() as folder:
        check_crashes(ObjectTopicStore(opened(folder)), sizes, crashes, False)


def check_crashes(first: TopicStore, sizes: list[list[int]], crashes: list[int], beside: bool) -> None:
    with pytest.MonkeyPatch.context() as m:
        m.setattr(log, "FOLD", 3)
        m.setattr(object_topics, "KEPT", 4)
        m.setattr(object_topics, "EVERY", 0)
        first.create("t", 2)
        number = iter(range(1000))
        rows = [[[next(number) for _ in range(n)] for n in sizes_] for sizes_ in sizes]
        prefixes = [[[i for b in rows[:k] for i in b[p]] for p in range(2)] for k in range(len(rows) + 1)]
        reader = again(first)  # lives through all crashes
        todo = list(crashes)
        batch = 0
        while batch < len(rows):
            store = again(first)  # a new process, which replays the batch that was under way
            with crash_at(todo.pop() if todo else 10_000):
                try:
                    if batch == 0:
                        clean_staging(store.topic("t"), "q")
                    while batch < len(rows):
                        one_batch(store, batch, rows[batch], beside)
                        batch += 1
                except Crash:
                    pass
            seen = values(store, "t")
            assert seen in (prefixes[batch], prefixes[min(batch + 1, len(rows))])
            assert [len(x) for x in seen] == reader.end_offsets("t")
        for look in (reader, again(first)):
            assert values(look, "t") == prefixes[-1]
            for p in range(2):
                found = look.read("t", p, 0, 999)["_line"]
                assert parse_envelope(found)["_t"].to_list() == prefixes[-1][p]
                if beside:
                    assert look.read_positions("t", p, 0, 999)["seq"].to_list() == prefixes[-1][p]
        for k in range(len(rows)):
            if any(sizes[k]):
                assert not one_batch(again(first), k, rows[k], beside)
        last = again(first)
        clean_staging(last.topic("t"), "q")
        assert values(last, "t") == prefixes[-1]
        assert not any(n.startswith("q~") for n in os.listdir(last.topic("t").staging))
        if isinstance(last, ObjectTopicStore):
            check_nothing_is_left(last)


def check_nothing_is_left(store: ObjectTopicStore) -> None:
    """No object of a batch that was published lies there unless some commit, or the rollup of one, names it."""
    topic = store.topic("t")
    documents = [json.loads(store.root.get(n, 1 << 20)) for n, _ in store.root.list(topic.commits)]
    named = {s["file"] for x in documents for s in x["segments"]}
    there = {n.removeprefix(f"{topic.path}/data/") for n, _ in store.root.list(f"{topic.path}/data")}
    assert not {n for n in there - named if not n.startswith(segments.ROLLS)}


@pytest.mark.heavy
@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_a_reader_beside_a_writer_at_every_step(
    anywhere: TopicStore, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """Commits are folded, and rollups of them, while it looks: it reads all that was committed, or all but the last."""
    monkeypatch.setattr(log, "FOLD", 2)
    monkeypatch.setattr(object_topics, "KEPT", 3)
    store = anywhere
    store.create("t", 2)
    topic, steps = again(store).topic("t"), iter(range(10_000))
    rows = [[[2 * batch], [2 * batch + 1] * (batch % 3)] for batch in range(17)]
    batch = 0

    def hook(point: str) -> None:
        if next(steps) % every:
            return
        for p in range(2):
            seen = parse_envelope(read(topic, p, 0, 999)["_line"])["_t"].to_list()
            done = [n for b in rows[:batch] for n in b[p]]
            assert seen in (done, done + rows[batch][p]), (point, batch)

    monkeypatch.setattr(files, "crash_hook", hook)
    for batch in range(len(rows)):
        one_batch(store, batch, rows[batch], False)


def test_every_point_is_reached(store: TopicStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FOLD", 2)
    store.create("t", 2)
    with crash_at(10_000) as seen:
        for batch in range(9):
            one_batch(store, batch, [[batch], [batch]], True)
    assert {*seen} == {
        *("staged", "recovered", "committed", "positions renamed", "renamed", "published"),
        *("rollup written", "folded", "commit removed"),
    }
    store.create("small")
    with crash_at(10_000) as seen:
        for i in range(4):
            store.append("small", [record(i)])
    assert {*seen} >= {"rolled up", "roll renamed", "rolled away"}


@pytest.mark.heavy
def test_small_segments_are_rolled_up(store: TopicStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FOLD", 10)
    monkeypatch.setattr(rollup, "LARGE", 4000)
    store.create("t", 2)
    early = TopicStore(store.root)
    files = Path(store.root.url) / "topics/t"

    def times(look: TopicStore) -> list[list[int]]:
        return [parse_envelope(look.read("t", p, 0, 999)["_line"])["_t"].to_list() for p in range(2)]

    for i in range(250):
        store.append("t", [{**record(i), "partition": i % 2}, {**record(1000 + i), "partition": i % 2}])
        if i == 95:
            assert len(times(early)[0]) == 96  # it knows small segments that are gone later
    assert len(list(files.glob("[01]/*.jsonl"))) < 60 and len(list(files.glob(".commits/*"))) < 30
    assert sorted(int(f.stem) for f in files.glob("0/*.jsonl"))[0] == 0
    want = [[n for i in range(p, 250, 2) for n in (i, 1000 + i)] for p in range(2)]
    for look in (early, store, TopicStore(store.root)):
        assert times(look) == want
        found = look.topic("t").view()
        assert found.last == 250
        assert [s.extent for s in found.parts[0]] == [
            segments.measure(str(files / f"0/{s.first:020d}.jsonl")) for s in found.parts[0]
        ]
    assert early.end_offsets("t") == [250, 250]

    torn_one = sorted(files.glob("0/*.jsonl"))[0]
    torn_one.write_bytes(torn_one.read_bytes()[:-5])
    with pytest.raises(BraidError, match="not the segment that was committed"):
        times(TopicStore(store.root))


def test_a_large_segment_of_small_ones(anywhere: TopicStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has an index, which none of its parts needs."""
    monkeypatch.setattr(log, "FOLD", 3)
    anywhere.create("t")
    for batch in range(3):
        one_batch(anywhere, batch, [[batch * 5000 + i for i in range(5000)]], False)
    late = again(anywhere)
    assert [len(s.extent.starts) for s in late.topic("t").view().parts[0]] == [2]
    assert parse_envelope(late.read("t", 0, 9_990, 10_010)["_line"])["_t"].to_list() == [*range(9_990, 10_010)]


def test_a_segment_that_cannot_be_read_is_not_rolled_up(store: TopicStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FOLD", 3)
    store.create("t")
    store.append("t", [record(0)])
    path = next((Path(store.root.url) / "topics/t/0").glob("*.jsonl"))
    path.write_bytes(path.read_bytes()[:-3])
    for i in range(1, 9):
        store.append("t", [record(i)])
    assert store.end_offsets("t") == [9] and store.read("t", 0, 3, 9).height == 6
    with pytest.raises(BraidError, match="not the segment that was committed"):
        store.read("t", 0, 0, 9)


def test_staged_files_of_a_dead_query_are_removed(store: TopicStore) -> None:
    store.create("t")
    topic = store.topic("t")
    stage(topic, "q", 0, 0, lines_of([1]))
    stage(topic, "q.1", 0, 0, lines_of([1]))
    assert clean_staging(topic, "q") == 1
    assert [n.split("~")[0] for n in os.listdir(topic.staging)] == ["q.1"]
    assert store.end_offsets("t") == [0]


def test_pieces_of_a_partition_follow_each_other(anywhere: TopicStore) -> None:
    store = anywhere
    store.create("t")
    topic = store.topic("t")
    staged = [stage(topic, "q", 0, 0, lines_of([i]), piece=i) for i in (2, 0, 1)]
    assert publish(topic, "q", 0, staged)
    assert values(store, "t") == [[0, 1, 2]]


def test_a_reader_does_not_wait_for_renames(store: TopicStore) -> None:
    store.create("t")
    with crash_at(2), pytest.raises(Crash, match="committed"):
        one_batch(store, 0, [[1, 2, 3]], True)
    assert os.listdir(Path(store.root.url) / "topics/t/0") == []
    assert values(store, "t") == [[1, 2, 3]]
    assert TopicStore(store.root).read_positions("t", 0, 1, 3)["seq"].to_list() == [2, 3]


def test_many_commits_are_folded(anywhere: TopicStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FOLD", 4)
    monkeypatch.setattr(object_topics, "KEPT", 5)
    store = anywhere
    store.create("t")
    early = again(store)
    assert early.end_offsets("t") == [0]
    for batch in range(70):
        publish(
            store.topic("t"),
            f"q{batch % 3}",
            batch,
            [stage(store.topic("t"), f"q{batch % 3}", batch, 0, lines_of([batch]))],
        )
        if batch == 30:
            assert early.end_offsets("t") == [31]
    assert early.end_offsets("t") == again(store).end_offsets("t") == [70]
    assert values(early, "t") == values(store, "t") == [list(range(70))]
    late = again(store).topic("t").view()
    assert late.queries == {"q0": 69, "q1": 67, "q2": 68}
    if isinstance(store, ObjectTopicStore):
        left = [n for n, _ in store.root.list(store.topic("t").commits) if "rollup" not in n]
        assert len(left) == 5
        return
    assert len(os.listdir(store.topic("t").commits)) < 12
    os.unlink(min(Path(store.topic("t").commits).glob("*.rollup.json")))
    with pytest.raises(BraidError, match="is missing"):
        TopicStore(store.root).end_offsets("t")


def test_torn_files_are_noticed(store: TopicStore) -> None:
    store.create("t")
    one_batch(store, 0, [[1, 2, 3]], False)
    path = Path(store.topic("t").segment_path(0, 0))
    data = path.read_bytes()
    broken: list[tuple[bytes | None, str]] = [
        (data[:-5], "bytes"),
        (data.replace(b'"value":2', b'"value":7'), "checksum"),
        (None, "missing"),
    ]
    for content, message in broken:
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(BraidError, match=message) as e:
            TopicStore(store.root).read("t", 0, 0, 3)
        assert str(path) in e.value.message
        path.write_bytes(data)
    assert values(store, "t") == [[1, 2, 3]]
    commit = next(Path(store.topic("t").commits).iterdir())
    commit.write_text("{")
    with pytest.raises(BraidError, match="damaged"):
        TopicStore(store.root).end_offsets("t")


def drop_in(folder: Path, first: int, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{first:020d}.jsonl"
    (folder / "tmp").write_bytes(data)
    os.utime(folder / "tmp", (1, 1))
    return (folder / "tmp").rename(path)


def test_segments_dropped_in_by_hand(store: TopicStore, tmp_path: Path) -> None:
    by_hand = tmp_path / "topics" / "hand"
    line = b'{"key":1,"value":1,"timestamp":%d}\n'
    drop_in(by_hand / "0", 0, line % 1 + line % 2)
    drop_in(by_hand / "1", 0, (line % 3).rstrip())
    assert store.names() == ["hand"]
    store.create("hand", 2)
    assert store.end_offsets("hand") == [2, 1]
    drop_in(by_hand / "1", 1, line % 4)
    assert store.end_offsets("hand") == [2, 2]  # noticed by a store that has looked before
    drop_in(by_hand / "0", 2, line % 5)
    store.append("hand", [record(6)])  # comes after what was dropped in
    assert [r["timestamp"] for r in read_records(TopicStore(store.root).topic("hand"))] == [1, 2, 5, 6, 3, 4]
    wrong = drop_in(by_hand / "0", 9, line % 9)
    with pytest.raises(BraidError, match="partition 0 ends at 4") as e:
        TopicStore(store.root).end_offsets("hand")
    assert "00000000000000000004.jsonl" in str(e.value.hint)
    wrong.rename(by_hand / "0" / "data.jsonl")
    with pytest.raises(BraidError, match="data"):
        TopicStore(store.root).end_offsets("hand")
    (by_hand / "0" / "data.jsonl").unlink()
    drop_in(by_hand / "3", 0, line)
    with pytest.raises(BraidError, match="only 2 partitions"):
        TopicStore(store.root).end_offsets("hand")


def test_a_segment_that_is_still_written_is_left_alone(store: TopicStore, tmp_path: Path) -> None:
    store.create("t")
    path = tmp_path / "topics/t/0" / segments.segment_name(0)
    stop = threading.Event()

    def write() -> None:
        with path.open("wb") as f:
            for i in range(30):
                f.write(b'{"key":1,"value":1,"timestamp":1}\n')
                f.flush()
                time.sleep(0.15 if i == 9 else 0.01)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not stop.is_set():
        assert store.end_offsets("t")[0] in (0, 30)
    writer.join()
    assert store.end_offsets("t") == [30]


def test_nothing_escapes_the_store(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "0").mkdir(parents=True)
    (outside / "secret.jsonl").write_text('{"key":1,"value":1,"timestamp":1}\n')
    store = TopicStore(opened(tmp_path / "store"))
    store.create("t", 2)
    topics = tmp_path / "store/topics"
    (topics / "link").symlink_to(outside)
    assert store.names() == ["t"]
    with pytest.raises(BraidError):
        store.end_offsets("link")
    (topics / "t/0" / segments.segment_name(0)).symlink_to(outside / "secret.jsonl")
    with pytest.raises(BraidError, match="symbolic link"):
        store.end_offsets("t")
    (topics / "t/0" / segments.segment_name(0)).unlink()
    (topics / "t/1").rmdir()
    (topics / "t/1").symlink_to(outside)
    with pytest.raises(BraidError, match="symbolic link"):
        TopicStore(opened(tmp_path / "store")).end_offsets("t")
    (topics / "t/1").unlink()
    store.append("t", [record(1)])
    commit = next((topics / "t/.commits").iterdir())
    x = loaded(commit)
    x["segments"][0]["file"] = "../../../../outside/secret.jsonl"
    commit.write_bytes(with_sum(x))
    with pytest.raises(BraidError, match="no plain file name"):
        TopicStore(opened(tmp_path / "store")).end_offsets("t")


def test_fsync_writes_the_same(tmp_path: Path) -> None:
    store = TopicStore(opened(tmp_path), fsync=True)
    store.create("t")
    store.append("t", [record(1)])
    one_batch(store, 0, [[5]], True)
    assert values(store, "t") == [[{"V": "v1"}, 5]]


WRITE_SOME = """
import sys
import base64, pickle
import polars as pl
from braid.topics import format_envelope, publish, stage

def write_some(store, query, count):
    topic = pickle.loads(base64.b64decode(store)).topic("t")
    for batch in range(count):
        texts = pl.Series([str(batch)] * 5)
        lines = format_envelope(texts, texts, texts.cast(pl.Int64))
        publish(topic, query, batch, [stage(topic, query, batch, p, lines) for p in range(2)])
"""


@pytest.mark.heavy
def test_writers_and_readers_at_once(anywhere: TopicStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes and two threads write, a thread reads: offsets are dense, batches whole, each once."""
    monkeypatch.setattr(log, "FOLD", 7)
    store = anywhere
    store.create("t", 2)
    code = WRITE_SOME + "from braid.topics import log\nlog.FOLD = 7\nwrite_some(sys.argv[1], sys.argv[2], 40)"
    text = base64.b64encode(pickle.dumps(store)).decode()
    processes = [subprocess.Popen([sys.executable, "-c", code, text, f"p{i}"]) for i in range(2)]
    scope: dict[str, Any] = {}
    exec(WRITE_SOME, scope)
    threads = [threading.Thread(target=scope["write_some"], args=(text, f"t{i}", 40)) for i in range(2)]
    for thread in threads:
        thread.start()
    reader = again(store)
    seen = [0, 0]
    while any(p.poll() is None for p in processes) or any(thread.is_alive() for thread in threads):
        ends = reader.end_offsets("t")
        assert ends[0] == ends[1] >= seen[0] and ends[0] % 5 == 0
        for p in range(2):
            found = parse_envelope(reader.read("t", p, seen[p], ends[p])["_line"])
            assert found.height == ends[p] - seen[p] and found["error"].is_null().all()
        seen = ends
    assert [p.wait() for p in processes] == [0, 0]
    time.sleep(2 * object_topics.SELDOM)
    assert reader.end_offsets("t") == [800, 800]
    assert all(sorted(part) == sorted(list(range(40)) * 20) for part in values(store, "t"))


def test_drops(tmp_path: Path) -> None:
    root = str(tmp_path)
    frame = pl.DataFrame(
        {
            "reason": ["late", "malformed"],
            "operator": ["join 1", "source"],
            "topic": "t",
            "partition": 0,
            "offset": [5, 6],
            "timestamp": [10, None],
            "clock": [20, None],
            "_key": ['{"K":1}', None],
            "_value": ['{"D":1.10}', None],
            "_raw": [None, b"\xff"],
            "message": [None, 'not "UTF-8"'],
        }
    )
    staged = drops.stage_drops(opened(root), "q", 0, 0, frame)
    assert staged and drops.read_drops(opened(root), "q") == []
    drops.publish_drops(opened(root), "q", 0, [staged])
    again = drops.stage_drops(opened(root), "q", 0, 0, frame)  # the replay of a batch
    assert again
    with crash_at(0), pytest.raises(Crash):
        drops.publish_drops(opened(root), "q", 0, [again])
    drops.publish_drops(opened(root), "q", 0, [again])
    assert drops.stage_drops(opened(root), "q", 1, 0, frame.clear()) is None
    drops.stage_drops(opened(root), "q", 2, 0, frame)
    drops.clean_drops(opened(root), "q", 1)
    assert os.listdir(f"{root}/drops/q/.staging")
    drops.clean_drops(opened(root), "q", 2)
    late, malformed = drops.read_drops(opened(root), "q")
    assert b'"value":{"D":1.10}' in next(drops.drop_lines(opened(root), "q"))[2]
    assert late["key"] == {"K": 1} and late["clock"] == 20 and "raw" not in late
    assert malformed["raw"] == "/w==" and malformed["message"] == 'not "UTF-8"' and "value" not in malformed
    with pytest.raises(BraidError):
        drops.read_drops(opened(root), "../q")


# -- the run lock -------------------------------------------------------------------------------------------------


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_second_run_is_refused(tmp_path: Path) -> None:
    assert holder(opened(tmp_path)) is None
    with StoreLock(opened(tmp_path)) as lock:
        lock.add_pid(os.getpid(), "something")
        assert holder(opened(tmp_path)) == os.getpid()
        with pytest.raises(BraidError, match=f"process {os.getpid()}"):
            StoreLock(opened(tmp_path)).acquire()
    assert holder(opened(tmp_path)) is None
    with StoreLock(opened(tmp_path)):
        pass


def test_a_run_after_a_killed_one_waits_for_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; from braid.store import opened; from braid.topics.lock import StoreLock; "
        "lock = StoreLock(opened(sys.argv[1]));"
        "lock.acquire(); child = subprocess.Popen(['sleep', '60']); lock.add_pid(child.pid);"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    driver = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    child = int(driver.stdout.readline())
    try:
        with pytest.raises(BraidError, match=f"process {driver.pid}"):
            StoreLock(opened(tmp_path)).acquire()
        driver.kill()
        driver.wait()
        driver.stdout.close()
        with pytest.raises(BraidError, match=f"process {child} .jvm. of an earlier run"):
            StoreLock(opened(tmp_path), wait=0.1).acquire()
        notes: list[str] = []
        threading.Timer(0.2, os.kill, (child, 9)).start()
        start = time.monotonic()
        with StoreLock(opened(tmp_path), note=notes.append):
            assert time.monotonic() - start > 0.1
        assert len(notes) == 1
    finally:
        for pid in (driver.pid, child):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue


def test_a_number_taken_by_another_program_is_no_orphan(tmp_path: Path) -> None:
    with StoreLock(opened(tmp_path)):
        text = json.loads((tmp_path / ".run.lock").read_text())
    text["processes"] = [{"pid": os.getppid(), "what": "jvm", "started": "another time"}]
    (tmp_path / ".run.lock").write_text(json.dumps(text))
    with StoreLock(opened(tmp_path), wait=0):
        wait_for(lambda: holder(opened(tmp_path)) == os.getpid())
