"""Topics and files as inputs: rows, times, and where batches may be cut."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
import math
import os
import pickle
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braid.errors import BraidError
from braid.files import copies, quotes
from braid.files import text as file_text
from braid.files.input import FileInput, clean, needs_time, open_files, reading
from braid.files.log import FileLog
from braid.files.values import csv_field, json_lines
from braid.operators.changes import NEVER
from braid.plan.logical import Place, Source, SourceColumn, Timestamp
from braid.records.encoding import Encoding
from braid.stage.cut import beginning, plan_batch
from braid.stage.decode import Decoded
from braid.stage.inputs import Input, TopicInput
from braid.store import opened as store_in
from braid.topics.store import TopicStore
from braid.types import MAX_DAY, MAX_TIME, Array, Column, Decimal, Map, Scalar, Struct, Type, polars_type
from effort import examples

S = Scalar


def source(columns: Sequence[tuple[str, Type, Place]], time: str | None = None, format: str | None = None) -> Source:
    made = tuple(SourceColumn(f"X.{n}", n, Column(n, t), place) for n, t, place in columns)
    made += (SourceColumn("X.ROWTIME", "ROWTIME", Column("ROWTIME", S.BIGINT), "rowtime"),)
    made += (SourceColumn("X.ROWOFFSET", "ROWOFFSET", Column("ROWOFFSET", S.BIGINT), "rowoffset"),)
    return Source("X", "S", "t", "stream", made, Encoding(), Timestamp(time, format) if time else None)


PLAIN = source([("K", S.INT, "key"), ("V", S.VARCHAR, "value")])
TIMED = source([("K", S.INT, "key"), ("V", S.VARCHAR, "value"), ("TS", S.BIGINT, "value")], "TS")


def values(d: Decoded, *names: str) -> list[Any]:
    picked = d.rows.select([n if n.startswith("_") else f"X.{n}" for n in names])
    return picked.to_series().to_list() if len(names) == 1 else picked.rows()


def opened(tmp_path: Path, pattern: str, s: Source, **more: Any) -> FileInput:
    return open_files(s, str(tmp_path / pattern), tmp_path / "cache", **more)


def refused(match: str, *args: Any, **more: Any) -> BraidError:
    with pytest.raises(BraidError, match=match) as e:
        opened(*args, **more)
    assert e.value.hint
    return e.value


# -------------------------------------------------------------------- topics


def test_a_topic_is_read_by_range(tmp_path: Path) -> None:
    store = TopicStore(store_in(tmp_path))
    store.create("t", 2)
    rows = [{"key": i, "value": {"V": str(i)}, "timestamp": 10 * i, "partition": 1} for i in range(5)]
    store.append("t", rows)
    x: Input = TopicInput(store, PLAIN)
    assert (x.partitions, x.ends()) == (2, [0, 5])
    d = pickle.loads(pickle.dumps(x)).read(1, 1, 4)
    assert values(d, "_offset", "_t", "K", "V", "ROWTIME", "ROWOFFSET") == [
        (i, 10 * i, i, str(i), 10 * i, i) for i in (1, 2, 3)
    ]
    assert d.error.null_count() == 3
    assert x.read(0, 0, 0).rows.height == 0
    with pytest.raises(BraidError, match="has no records 3 to 9"):
        x.read(1, 3, 10)


def test_lines_that_are_no_records_have_their_place(tmp_path: Path) -> None:
    store = TopicStore(store_in(tmp_path))
    store.create("t")
    good = '{"key":1,"value":{"V":"a"},"timestamp":%d}'
    store.append_lines("t", ["nonsense", good % 20, "", '{"key":1,"value":{"V":"a"}}', good % 10, "{", good % 30])
    x = TopicInput(store, PLAIN)
    d = x.read(0, 0, 7)
    assert values(d, "_t") == [NEVER, 20, 20, 20, 10, 20, 30]
    assert [e is None for e in d.error.to_list()] == [False, True, False, False, True, False, True]
    assert values(d, "_value")[0] == "nonsense" and values(d, "_value")[5] == "{"
    assert values(x.read(0, 2, 5), "_t") == [NEVER, NEVER, 10]
    # they never cut
    assert [x.cut(0, 0, t) for t in (NEVER, 9, 19, 20, 30)] == [1, 1, 1, 6, 7]
    assert [x.cut(0, 2, t) for t in (9, 10, 30)] == [4, 6, 7]
    assert [x.time_after(0, 0, n) for n in (1, 2, 6, 7, 8)] == [NEVER, 20, 20, 30, None]


def test_a_malformed_value_keeps_the_time_of_its_record(tmp_path: Path) -> None:
    store = TopicStore(store_in(tmp_path))
    store.create("t")
    line = '{"key":1,"value":%s,"timestamp":5}'
    store.append_lines("t", [line % '{"TS":100}', line % '{"TS":"x"}', "no", line % '{"TS":90}', line % "null"])
    x = TopicInput(store, TIMED)
    d = x.read(0, 0, 5)
    assert values(d, "_t") == [100, 5, 100, 90, 5]
    assert [e is None for e in d.error.to_list()] == [True, False, False, True, True]
    assert values(d, "_diff")[4] == -1
    assert [x.cut(0, 0, t) for t in (4, 99, 100)] == [0, 0, 5]
    assert [x.cut(0, 1, t) for t in (4, 5, 89, 90)] == [1, 3, 3, 5]


@pytest.mark.heavy
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_cuts_of_a_topic_are_those_of_its_times(tmp_path: Path, seed: int, timed: bool, monkeypatch: Any) -> None:
    """Against the definition, over several segments, one of them of several chunks."""
    r = random.Random(seed)
    store = TopicStore(store_in(tmp_path))
    store.create("t")
    lines = []
    for size in (3, 9000, 1, 20):
        some = []
        for _ in range(size):
            t = len(lines) + len(some) + r.randrange(-200, 200)
            value = {"V": "a", "TS": t}
            text = json.dumps({"key": 1, "value": value, "timestamp": 7 if timed else t})
            some.append(r.choices([text, "broken"], [50, 1])[0])
        store.append_lines("t", some)
        lines += some
    x = TopicInput(store, TIMED if timed else PLAIN)
    times = [NEVER if line == "broken" else json.loads(line)["value"]["TS"] for line in lines]
    for _ in range(40):
        first = r.choice([0, 1, 3, 8191, 8192, 9003, len(times), r.randrange(len(times))])
        time, count = r.randrange(-300, 9400), r.choice([0, 1, 5, 8192, 9000, r.randrange(9100)])
        want = next((o for o in range(first, len(times)) if times[o] > time), len(times))
        assert x.cut(0, first, time) == want
        highest = max(times[first : first + count], default=None) if first + count <= len(times) else None
        assert x.time_after(0, first, count) == highest


def test_a_topic_that_grows(tmp_path: Path) -> None:
    store = TopicStore(store_in(tmp_path))
    store.create("t")
    x = TopicInput(store, PLAIN)
    assert x.cut(0, 0, 100) == 0 and plan_batch([(0, x)], beginning()) is None
    store.append("t", [{"key": 1, "value": None, "timestamp": t} for t in (5, 7)])
    assert x.cut(0, 0, 6) == 1 and x.ends() == [2]
    first = plan_batch([(0, x)], beginning())
    assert first == {"next": {"0/0": 2}, "ended": []}
    store.append("t", [{"key": 1, "value": None, "timestamp": 9}])
    assert plan_batch([(0, x)], first) == {"next": {"0/0": 3}, "ended": []}


# ----------------------------------------------------------------------- CSV

TYPED = source(
    [
        ("K", S.INT, "key"),
        ("NAME", S.VARCHAR, "value"),
        ("PRICE", Decimal(10, 2), "value"),
        ("SCORE", S.DOUBLE, "value"),
        ("OK", S.BOOLEAN, "value"),
        ("DAY", S.DATE, "value"),
        ("AT", S.TIMESTAMP, "value"),
        ("TAGS", Array(S.INT), "value"),
    ],
    "AT",
)
CSV = """k,Name,extra,price,score,ok,day,at,tags
1,"a ""quoted"", name",x,1.5,2.5,true,2013-01-01,2013-01-01 05:00:00,"[1,2]"
2,,x,,,,,2013-01-01T06:00:00Z,
3,c,x,1.005,1,true,2013-01-01,2013-01-01 07:00:00,[]
4,"two
lines",x,3,NaN,FALSE,17,1357023600000,[3]
"""


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    x = opened(tmp_path, "a.csv", TYPED)
    assert (x.partitions, x.ends()) == (1, [4])
    d = x.read(0, 0, 4)
    assert values(d, "_offset", "_t", "K", "NAME", "PRICE", "OK", "ROWTIME")[:2] == [
        (0, 1357016400000, 1, 'a "quoted", name', D("1.50"), True, 1357016400000),
        (1, 1357020000000, 2, None, None, None, 1357020000000),
    ]
    assert values(d, "NAME")[3] == "two\nlines" and values(d, "TAGS") == [[1, 2], None, None, [3]]
    assert d.error.to_list() == [None, None, "column PRICE: '1.005' is not a DECIMAL(10, 2)", None]
    # the malformed row has its time, nulls, and its fields
    assert values(d, "_t")[2] == 1357023600000 and values(d, "K")[2] is None
    assert json.loads(values(d, "_value")[2])["price"] == "1.005"
    assert values(d, "_key")[1] == "2" and json.loads(values(d, "_value")[1])["NAME"] is None
    again = pickle.loads(pickle.dumps(x)).read(0, 1, 3)
    assert again.rows.equals(d.rows[1:3]) and again.error.to_list() == d.error.to_list()[1:3]


def test_null_value_and_delimiter(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('k;v\n1;NA\nNA;"x;y"\n3;\n')
    x = opened(tmp_path, "a.csv", PLAIN, options={"null_value": "NA", "delimiter": ";"})
    assert values(x.read(0, 0, 3), "K", "V", "_t") == [(1, None, 0), (None, "x;y", 0), (3, None, 0)]
    x = opened(tmp_path, "a.csv", PLAIN, options={"delimiter": ";"})
    d = x.read(0, 0, 3)
    assert d.error[1] == "column K: 'NA' is not an INTEGER" and values(d, "V")[0] == "NA"
    for d in ";|\t":  # the header shows it, where it has no comma
        (tmp_path / "b.csv").write_text('k;v\n1;"x;y"\n2;a,b\n'.replace(";", d))
        assert values(opened(tmp_path, "b.csv", PLAIN).read(0, 0, 2), "V") == [f"x{d}y", "a,b"]
    refused("no option nulls", tmp_path, "a.csv", PLAIN, options={"nulls": "NA"})


def test_bad_lines_cost_their_neighbours_nothing(tmp_path: Path) -> None:
    lines = [
        b"k,v,ts",
        b"1,a,10",
        b"2,b",
        b"3,c,30,x",
        b"",
        b"x,d,40",
        b'5,"e',
        b'f",50',
        b"6,\xff,60",
        b"7,g\x00,70,",
        b"8,h,8",
    ]
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines) + b"\r\n\r\n")
    x = opened(tmp_path, "a.csv", TIMED)
    d = x.read(0, 0, x.ends()[0])
    assert d.error.to_list() == [
        None,
        "2 fields, the header has 3",
        "4 fields, the header has 3",
        "column K: 'x' is not an INTEGER",
        None,
        "the line is not UTF-8",
        "4 fields, the header has 3",
        None,
    ]
    assert values(d, "_t") == [10, 10, 10, 40, 50, 50, 50, 8]  # no time: the highest so far
    assert values(d, "V")[4] == "e\r\nf"
    assert values(d, "_value")[2] == '["3","c","30","x"]'
    assert [x.cut(0, 0, t) for t in (9, 10, 39, 40, 50)] == [0, 3, 3, 4, 8]


def test_an_empty_text_has_quotes_and_null_has_none(tmp_path: Path) -> None:
    """In either way of reading: the second file has a line that is read by itself."""
    typed = source([("K", S.VARCHAR, "key"), ("V", S.VARCHAR, "value"), ("N", S.INT, "value"), ("B", S.BYTES, "value")])
    text = 'k,v,n,b\r\n"","",1,""\r\n,,"",\r\n" ", ,2,YQ==\r\n'
    for name, more, count in (("a.csv", "", 3), ("b.csv", "short,line\r\n", 4)):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + (text + more).encode())
        x = opened(tmp_path, name, typed)
        assert x.ends() == [count]
        want = [("", "", 1, b""), (None, None, None, None), (" ", " ", 2, b"a")]
        assert values(x.read(0, 0, 3), "K", "V", "N", "B") == want
    one = source([("K", S.VARCHAR, "key")])
    (tmp_path / "c.csv").write_bytes(b'k\n""\n\nx\n')
    assert values(opened(tmp_path, "c.csv", one).read(0, 0, 3), "K") == ["", None, "x"]


OPEN_QUOTE = [  # lines of a file behind its header; those that are malformed
    (["1,Ann", '2,"Bob', "3,Cy", "4,Di"], [1]),
    (["1,Ann", '2,"Bob', '3,"Cy"', '4,"Di"'], [1]),
    (["1,Ann", '2,"Bob', '3,"C""y"', '4,""'], [1]),
    (["1,Ann", '2,"Bob"x', "3,Cy", '4,Di"'], [1]),
    (["1,Ann", '2,B"o"b', '3,5" or so', "4,Di"], []),
    (["1,Ann", '"2,Bob', "3,Cy", "4,Di"], [1]),
    (["1,Ann", '2,"Bob', '3,"Cy', "4,Di"], [1, 2]),
    (['1,"Ann', "2,Bob", "3,Cy", '4,"Di'], [0, 3]),
]


@pytest.mark.parametrize("lines, bad", OPEN_QUOTE)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_quote_that_is_not_closed_costs_its_line(
    tmp_path: Path, lines: list[str], bad: list[int], end: str, name: str, monkeypatch: Any
) -> None:
    data = b"\xef\xbb\xbf" + end.join(["k,v", *lines, ""]).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    want = [None if i in bad else i + 1 for i in range(4)]
    for size in (file_text.BLOCK, 9, 1):
        monkeypatch.setattr(file_text, "BLOCK", size)
        clean(tmp_path / "cache", [])
        x = opened(tmp_path, name, PLAIN)
        d = x.read(0, 0, x.ends()[0])
        assert values(d, "K") == want
        assert d.error.is_not_null().arg_true().to_list() == bad
        assert all("quote" in e for e in d.error.drop_nulls())
        assert [values(d, "_value")[i] for i in bad] == [json.dumps([lines[i]]) for i in bad]


def test_a_header_with_a_quote_that_is_not_closed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('k,"v\n1,a\n2,b\n')
    refused("the header of .* cannot be read: a quote is not closed", tmp_path, "a.csv", PLAIN)


def test_blocks_hold_whole_records(tmp_path: Path, monkeypatch: Any) -> None:
    r = random.Random(1)
    rows = [(i, "".join(r.choices('ab,"\n', k=r.randrange(6)))) for i in range(150)]
    pl.DataFrame(rows, schema=["k", "v"], orient="row").write_csv(tmp_path / "a.csv")
    whole = opened(tmp_path, "a.csv", PLAIN)
    want = whole.read(0, 0, 150)
    assert values(want, "V") == [v for _, v in rows] and want.error.null_count() == 150
    for size in (7, 64, 1000):
        monkeypatch.setattr(file_text, "BLOCK", size)
        clean(tmp_path / "cache", [])
        assert not os.listdir(tmp_path / "cache")
        assert opened(tmp_path, "a.csv", PLAIN).read(0, 0, 150).rows.equals(want.rows)


def test_lines_of_json_keep_their_order_and_their_errors(tmp_path: Path, monkeypatch: Any) -> None:
    lines = [
        b"nonsense" if n % 7 == 3 else b'{"k":"x"}' if n % 11 == 5 else b'{"k":%d,"v":"%d"}' % (n, n)
        for n in range(400)
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    want = opened(tmp_path, "a.jsonl", PLAIN).read(0, 0, 400)
    bad = [n for n in range(400) if n % 7 == 3 or n % 11 == 5]
    assert want.error.is_not_null().arg_true().to_list() == bad
    assert [values(want, "_value")[n] for n in bad] == [lines[n].decode() for n in bad]
    for size in (30, 200, 2000):
        monkeypatch.setattr(file_text, "BLOCK", size)
        clean(tmp_path / "cache", [])
        again = opened(tmp_path, "a.jsonl", PLAIN).read(0, 0, 400)
        assert again.rows.equals(want.rows) and again.error.equals(want.error)


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_what_is_parsed_side_by_side_is_given_in_order(count: int) -> None:
    def slowest_first(block: bytes) -> bytes:
        time.sleep(0.01 / (block[0] + 1))
        return block

    blocks = [bytes([n]) for n in range(count)]
    assert list(file_text.ahead(slowest_first, iter(blocks))) == blocks


def test_an_error_side_by_side_comes_in_its_turn_and_nothing_runs_on() -> None:
    seen: list[int] = []

    def third_fails(block: bytes) -> bytes:
        seen.append(block[0])
        if block[0] == 2:
            raise BraidError("the third", "mend it")
        return block

    given = file_text.ahead(third_fails, (bytes([n]) for n in range(200)))
    assert [next(given), next(given)] == [b"\0", b"\1"]
    with pytest.raises(BraidError, match="the third"):
        next(given)
    assert len(seen) < 40
    first = file_text.ahead(third_fails, (bytes([n]) for n in range(3, 200)))
    assert next(first) == b"\3"
    del first  # whoever looks at the first rows only leaves the rest


def test_an_open_quote_does_not_swallow_the_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(file_text, "BLOCK", 200)
    (tmp_path / "a.csv").write_text('k,v\n1,"open\n' + "".join(f"{i},x\n" for i in range(1000)))
    x = opened(tmp_path, "a.csv", PLAIN)
    d = x.read(0, 0, x.ends()[0])
    assert values(d, "K") == [None, *range(1000)] and d.error.is_not_null().arg_true().to_list() == [0]


def test_a_text_longer_than_a_line_may_be_is_open(tmp_path: Path, monkeypatch: Any) -> None:
    """What is between its quotes is read as rows: wherever the closing one stands, nobody waits for it."""
    monkeypatch.setattr(file_text, "BLOCK", 300)
    monkeypatch.setattr(quotes, "LONGEST", 2000)
    monkeypatch.setattr(file_text, "LONGEST", 2000)
    for count in (100, 600):
        (tmp_path / f"{count}.csv").write_text('k,v\n1,"' + "2,x\n" * count + '"\n3,y\n')
        d = opened(tmp_path, f"{count}.csv", PLAIN).read(0, 0, 1000)
        assert d.error.null_count() == (2 if count == 100 else count)
        assert values(d, "K")[-1] == 3


def test_rows_are_the_same_however_bytes_are_cut() -> None:
    """What is between a row's start and the end decides where the row ends; `csv` agrees where quotes fit."""
    r = random.Random(3)
    fitting = 0
    for n in range(examples(4000, 400)):
        by = r.choice(",;|\t")
        data = "".join(r.choices(f'a"{by}\n\r' if n % 2 else f'"\n{by}', k=r.randrange(1, 40))).encode()
        whole = list(quotes.rows(data, by))
        assert [row.start for row in whole] + [len(data)] == [0, *(row.stop for row in whole)]
        fits = quotes.fit(data, by, last=True)
        if fits:
            fitting += 1
            assert not any(row.error for row in whole)
            ends = [int(i) + 1 for i in quotes.outside(data, 10)]
            assert [row.stop for row in whole if data[row.stop - 1 :][:1] == b"\n"] == ends
        if not any(row.error for row in whole) and b"\r" not in data:
            said = [[x or "" for x in quotes.fields(data[a:b].decode().removesuffix("\n"), by)] for a, b, _ in whole]
            assert said == list(csv.reader(io.StringIO(data.decode(), newline=""), delimiter=by))
        for cut in range(len(data) + 1):  # what is whole before a cut stays so
            at = quotes.whole_rows(data[:cut], by)
            assert at in (0, *(row.stop for row in whole))
            assert [row for row in quotes.rows(data, by) if row.stop <= at] == list(quotes.rows(data[:at], by))
    assert fitting > 50


def test_compressed_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"k,v\n1,a\n2,b\n"))
    with pa.CompressedOutputStream(str(tmp_path / "b.csv.zst"), "zstd") as f:
        f.write(b"K,V\n3,c\n")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b'{"k":4,"v":"d"}\n'))
    x = opened(tmp_path, "[abc].*", PLAIN)
    assert [f.name for f in x.files] == ["a.csv.gz", "b.csv.zst", "c.jsonl.gz"]
    assert values(x.read(0, 0, 4), "K", "V") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(os.urandom(1 << 20))[:1000])
    refused("cannot be read", tmp_path, "d.csv.gz", PLAIN)


def test_empty_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,k,v\n")
    (tmp_path / "b.csv").write_text("k,v,ts\n1,a,5")
    (tmp_path / "c.jsonl").write_text("")
    x = opened(tmp_path, "*.*", TIMED)
    assert [(f.first, f.rows) for f in x.files] == [(0, 0), (0, 1)]  # the third is waited for
    assert values(x.read(0, 0, 1), "K", "_t") == [(1, 5)] and x.read(0, 1, 1).rows.height == 0
    assert x.read(0, 1, 1).rows.schema == x.read(0, 0, 1).rows.schema
    (tmp_path / "d.csv").write_text("")
    refused("has no header", tmp_path, "d.csv", PLAIN)


def test_times_as_text(tmp_path: Path) -> None:
    s = source([("K", S.INT, "key"), ("AT", S.VARCHAR, "value")], "AT", "yyyy-MM-dd HH:mm")
    (tmp_path / "a.csv").write_text("k,at\n1,2013-01-01 05:00\n2,soon\n3,\n4,2013-01-01 04:00\n")
    d = opened(tmp_path, "a.csv", s).read(0, 0, 4)
    assert values(d, "_t") == [1357016400000, 1357016400000, 1357016400000, 1357012800000]
    assert d.error.to_list() == [None, *["timestamp column AT holds no time"] * 2, None]
    assert json.loads(values(d, "_value")[1]) == {"K": 2, "AT": "soon"}


# ---------------------------------------------------------------- JSON lines


def test_json_lines(tmp_path: Path) -> None:
    lines = ['{"K":1,"V":"a","TS":5}', "", '{"k":2,"ts":7}', "nonsense", '{"K":"3","V":"c","TS":9}', "null", " \t"]
    (tmp_path / "a.jsonl").write_bytes("\n".join(lines).encode() + b'\n{"K":4,"V":"\xff"}\n{"K":5,"V":"e","TS":6}')
    x = opened(tmp_path, "a.jsonl", TIMED)
    d = x.read(0, 0, x.ends()[0])
    assert values(d, "_t", "K", "V") == [
        (5, 1, "a"), (7, 2, None), (7, None, None), (7, None, None), (7, None, None), (7, None, None), (6, 5, "e"),
    ]  # fmt: skip
    errors = d.error.to_list()
    assert [e is None for e in errors] == [True, True, False, False, False, False, True]
    assert "K" in errors[3] and errors[4] == "null is not a JSON object" and errors[5] == "the line is not UTF-8"
    assert values(d, "_value")[2] == "nonsense" and json.loads(values(d, "_value")[3])["K"] == "3"
    assert all(x == 1 for x in values(d, "_diff"))


# ------------------------------------------------------------------- Parquet


def test_parquet(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "at": pl.Series([3, 1, None, 2], dtype=pl.Int64).cast(pl.Datetime("ms")),
            "k": [1.0, 2.5, float("nan"), 4.0],
            "name": ["a", "b", None, "d"],
            "price": [1.5, 2.0, 3.0, 4.25],
            "SCORE": [1, 2, 3, 4],
            "ok": [True, None, False, True],
            "day": pl.Series([0, 1, 2, 3], dtype=pl.Int32).cast(pl.Date),
            "tags": [[1], [2**40], None, []],
            "more": ["x"] * 4,
        }
    )
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=2)
    x = opened(tmp_path, "*.parquet", TYPED)
    d = x.read(0, 0, 4)
    assert d.error.to_list() == [
        None,
        "column K: '2.5' is not an INTEGER",
        "timestamp column AT holds no time",
        None,
    ]
    assert values(d, "_t") == [3, 1, 3, 2]
    assert values(d, "K", "NAME", "PRICE", "SCORE")[3] == (4, "d", D("4.25"), 4.0)
    assert json.loads(values(d, "_value")[1])["k"] == 2.5
    assert x.read(0, 1, 3).rows.select("_offset", "X.K").equals(d.rows[1:3].select("_offset", "X.K"))
    assert [x.cut(0, 0, t) for t in (0, 2, 3)] == [0, 0, 4] and x.cut(0, 1, 1) == 3
    frame.with_columns(pl.lit([1]).alias("k")).write_parquet(tmp_path / "b.parquet")
    refused(r"column k is List\(Int64\), but S.K is an INTEGER", tmp_path, "b.parquet", TYPED)
    (tmp_path / "c.parquet").write_text("k,v\n")
    refused("is not a Parquet file", tmp_path, "c.parquet", TYPED)


MAPS = [
    (pa.map_(pa.string(), pa.int32()), Map(S.VARCHAR, S.INT), [("a", 1), ("b", None)]),
    (pa.map_(pa.string(), pa.int64()), Map(S.VARCHAR, S.INT), [("a", 1), ("b", None)]),
    (pa.list_(pa.map_(pa.string(), pa.int64())), Array(Map(S.VARCHAR, S.INT)), [[("a", 1)], None]),
    (pa.map_(pa.string(), pa.map_(pa.string(), pa.int32())), Map(S.VARCHAR, Map(S.VARCHAR, S.INT)),
     [("a", [("x", 1)])]),
    (pa.struct([("M", pa.map_(pa.string(), pa.timestamp("us")))]), Struct((Column("M", Map(S.VARCHAR, S.TIMESTAMP)),)),
     {"M": [("a", dt.datetime(2024, 3, 1))]}),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "declared", "value"), MAPS)
def test_maps_of_a_parquet_file(tmp_path: Path, dtype: pa.DataType, declared: Type, value: Any) -> None:
    table = pa.table({"K": pa.array([1, 2, 3], pa.int32()), "M": pa.array([value, None, value], dtype)})
    pq.write_table(table, tmp_path / "a.parquet")
    d = opened(tmp_path, "a.parquet", source([("K", S.INT, "key"), ("M", declared, "value")])).read(0, 0, 3)
    assert d.error.is_null().all()
    assert d.rows["X.M"].dtype == polars_type(declared)
    assert d.rows["X.M"].to_list() == [as_entries(value), None, as_entries(value)]


def as_entries(x: Any) -> Any:
    """A value of Arrow as Polars has it."""
    if isinstance(x, dict):
        return {k: as_entries(v) for k, v in x.items()}
    if isinstance(x, list):
        return [{"key": e[0], "value": as_entries(e[1])} if isinstance(e, tuple) else as_entries(e) for e in x]
    return x


def test_what_is_not_a_number_is_no_decimal(tmp_path: Path) -> None:
    pl.DataFrame({"K": [1, 2], "P": [1.5, math.nan]}).write_parquet(tmp_path / "a.parquet")
    s = source([("K", S.INT, "key"), ("P", Decimal(10, 2), "value")])
    d = opened(tmp_path, "a.parquet", s).read(0, 0, 2)
    assert d.error.to_list() == [None, "column P: 'nan' is not a DECIMAL(10, 2)"]


FIRST = dt.datetime(2024, 3, 1, 8)
WRITTEN: dict[str, tuple[Type, list[Any]]] = {
    "I": (S.INT, [1, None, 3]),
    "D": (S.DOUBLE, [1.5, math.inf, -math.inf]),
    "R": (S.REAL, [1.1, None, -math.inf]),
    "J": (S.SMALLINT, [-32768, None, 32767]),
    "Z": (S.TIMESTAMPTZ, [FIRST, None, dt.datetime(1969, 12, 31, 23, 59, 59, 999000)]),
    "N": (Decimal(10, 2), [D("1.50"), None, D(3)]),
    "B": (S.BYTES, [b"\x00\xff", None, b""]),
    "T": (S.VARCHAR, ['a,"b"\n', None, "é"]),
    "E": (S.VARCHAR, ["", None, '""']),
    "O": (S.BOOLEAN, [True, None, False]),
    "Y": (S.DATE, [dt.date(2024, 3, 1), None, dt.date(1, 1, 1)]),
    "C": (S.TIME, [dt.time(8), None, dt.time(23, 59, 59, 999000)]),
    "AT": (S.TIMESTAMP, [FIRST, None, dt.datetime(1969, 12, 31, 23, 59, 59, 999000)]),
    "A": (Array(S.DATE), [[dt.date(2024, 3, 1), None], None, []]),
    "M": (Map(S.VARCHAR, S.INT), [[{"key": 'q"', "value": 1}], None, []]),
    "S": (
        Struct((Column("X", S.TIMESTAMP), Column("Y", Array(S.VARCHAR)))),
        [{"X": FIRST, "Y": ["a,b", None]}, None, {"X": None, "Y": None}],
    ),
}


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_text_files_that_were_written_are_read_as_they_were(tmp_path: Path, kind: str) -> None:
    columns = [Column(n, t) for n, (t, _) in WRITTEN.items()]
    frame = pl.DataFrame([pl.Series(c.name, WRITTEN[c.name][1], dtype=polars_type(c.type)) for c in columns])
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        pl.DataFrame([csv_field(frame[c.name], c.type).alias(c.name) for c in columns]).write_csv(path)
    else:
        path.write_text("\n".join(json_lines(frame, columns)))
    d = opened(tmp_path, path.name, source([(c.name, c.type, "value") for c in columns])).read(0, 0, 3)
    assert d.error.to_list() == [None] * 3
    for c in columns:
        assert d.rows[f"X.{c.name}"].equals(frame[c.name]), c.name


def test_iso_text_in_json_lines(tmp_path: Path) -> None:
    """As in CSV, under the same declaration; the time of the row too."""
    rows = [(i, f"2024-03-01T08:{i % 60:02}:00Z", "2024-03-01") for i in range(300)]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"k": k, "at": at, "day": day}) for k, at, day in rows))
    (tmp_path / "a.csv").write_text("k,at,day\n" + "".join(f"{k},{at},{day}\n" for k, at, day in rows))
    s = source([("K", S.INT, "key"), ("AT", S.TIMESTAMP, "value"), ("DAY", S.DATE, "value")], "AT")
    seen = [opened(tmp_path, name, s).read(0, 0, 300) for name in ("a.jsonl", "a.csv")]
    assert all(d.error.is_null().all() for d in seen)
    assert seen[0].rows.equals(seen[1].rows)


def test_numbers_of_json_lines_are_read_as_in_a_topic(tmp_path: Path) -> None:
    """Of ksqldb: a number in a text, a whole one with a fraction; dates and times may be ISO text besides."""
    lines = ['{"k":1.0,"b":1E+2,"d":"1e3"}', '{"k":"2","b":"7"}', '{"k":3,"b":1.7}', '{"k":4,"b":9007199254740993}']
    lines += ['{"k":5,"at":"2024-03-01T08:00:00Z"}', '{"k":6,"b":"seven"}', '{"k":7,"at":86400000}']
    columns = [("K", S.INT, "key"), ("B", S.BIGINT, "value"), ("D", S.DOUBLE, "value"), ("AT", S.TIMESTAMP, "value")]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    s = source(columns)  # type: ignore[arg-type]
    plain = opened(tmp_path, "a.jsonl", s).read(0, 0, 7)
    assert [e is not None for e in plain.error] == [True, True, True, False, False, True, False]
    d = opened(tmp_path, "a.jsonl", replace(s, encoding=Encoding(lenient=True))).read(0, 0, 7)
    assert [e is not None for e in d.error] == [False, False, False, False, False, True, False]
    rows = [r for r, e in zip(values(d, "K", "B", "D"), d.error, strict=True) if e is None]
    assert rows[:4] == [(1, 100, 1000.0), (2, 7, None), (3, 1, None), (4, 9007199254740993, None)]


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_dates_of_a_parquet_file_beyond_all_calendars(tmp_path: Path, unit: Any) -> None:
    """Such files are written; Polars ends with a panic where it must name such a day."""
    per_ms = 1 if unit == "ms" else 1000
    day = pl.Series([0, MAX_DAY - 1, MAX_DAY, 0, None], dtype=pl.Int32).cast(pl.Date)
    at = pl.Series([0, (MAX_TIME - 1) * per_ms, 0, -MAX_TIME * per_ms - 1, None], dtype=pl.Int64).cast(
        pl.Datetime(unit)
    )
    pl.DataFrame({"k": [1] * 5, "day": day, "at": at}).write_parquet(tmp_path / "a.parquet")
    for types in ((S.DATE, S.TIMESTAMP), (S.VARCHAR, S.VARCHAR)):
        declared = source([("K", S.INT, "key"), ("DAY", types[0], "value"), ("AT", types[1], "value")])
        d = opened(tmp_path, "a.parquet", declared).read(0, 0, 5)
        assert [e is not None for e in d.error] == [False, False, True, True, False]


def test_a_parquet_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    pl.DataFrame({"k": [1], "v": ["a"]}).write_parquet(tmp_path / "a.parquet")
    x = opened(tmp_path, "a.parquet", PLAIN)
    pl.DataFrame({"k": [1, 2], "v": ["a", "b"]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(BraidError, match="was changed"):
        x.read(0, 0, 1)
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(BraidError, match="is gone"):
        x.read(0, 0, 1)


# -------------------------------------------------------------- many files


def many(tmp_path: Path, r: random.Random, ends: Sequence[str]) -> list[int]:
    """Files of random sizes with rows (k, v, ts); the times over all of them."""
    times: list[int] = []
    for n, end in enumerate(ends):
        size = r.choice([0, 1, 10, 300])
        ts = [len(times) + i + r.randrange(-20, 20) for i in range(size)]
        frame = pl.DataFrame({"k": range(size), "v": ["x"] * size, "ts": ts}, schema_overrides={"ts": pl.Int64})
        path = tmp_path / f"{n:02d}{end}"
        match end:
            case ".csv":
                frame.write_csv(path)
            case ".jsonl":
                frame.write_ndjson(path)
            case _:
                frame.write_parquet(path, row_group_size=50)
        times += ts
    return times


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3))
def test_cuts_of_files_are_those_of_their_times(tmp_path: Path, seed: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(copies, "CHUNK", 16)
    r = random.Random(seed)
    times = many(tmp_path, r, r.choices([".csv", ".jsonl", ".parquet"], k=6))
    x = opened(tmp_path, "*.*", TIMED)
    assert x.ends() == [len(times)]
    assert values(x.read(0, 0, len(times)), "_t") == times
    for _ in range(100):
        first = r.randrange(len(times) + 1)
        time, count = r.randrange(-30, len(times) + 30), r.randrange(len(times) + 1)
        want = next((o for o in range(first, len(times)) if times[o] > time), len(times))
        assert x.cut(0, first, time) == want
        want_top = max(times[first : first + count], default=None) if first + count <= len(times) else None
        assert x.time_after(0, first, count) == want_top
        last = min(first + r.randrange(50), len(times))
        assert values(x.read(0, first, last), "_offset", "_t") == [(i, times[i]) for i in range(first, last)]


def test_files_of_several_sources_in_batches(tmp_path: Path) -> None:
    (tmp_path / "l").mkdir()
    (tmp_path / "r").mkdir()
    left = many(tmp_path / "l", random.Random(1), [".csv", ".parquet"])
    many(tmp_path / "r", random.Random(2), [".jsonl"])
    xs = [(0, opened(tmp_path, "l/*", TIMED)), (1, opened(tmp_path, "r/*", TIMED))]
    at, seen = beginning(), []
    while (end := plan_batch(xs, at, 50)) is not None:
        first, last = at["next"].get("0/0", 0), end["next"]["0/0"]
        seen += values(xs[0][1].read(0, first, last), "_t")
        at = end
    assert seen == left and at["ended"] == []


def test_a_source_without_times_stands_at_zero(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,v\n1,a\n2,b\n")
    x = opened(tmp_path, "a.csv", PLAIN)
    assert [x.cut(0, 0, -1), x.cut(0, 1, -1), x.cut(0, 0, 0), x.cut(0, 2, -1)] == [0, 1, 2, 2]
    assert [x.time_after(0, 0, n) for n in (1, 2, 3)] == [0, 0, None]
    assert values(x.read(0, 0, 2), "_t") == [0, 0]
    with pytest.raises(BraidError, match="has no times") as e:
        needs_time(PLAIN)
    assert e.value.hint and "timestamp = " in e.value.hint
    needs_time(TIMED)


# --------------------------------------------------------- lists and caches


def test_what_is_made_is_made_again_where_it_is_missing(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "a.csv").write_text("k,v,ts\n1,a,5\n")
    x = opened(tmp_path, "a.csv", TIMED)
    assert len(os.listdir(tmp_path / "cache")) == 2
    want = x.read(0, 0, 1).rows
    clean(tmp_path / "cache", [])
    assert x.read(0, 0, 1).rows.equals(want)  # as on another node
    clean(tmp_path / "cache", [])
    (tmp_path / "a.csv").write_text("k,v,ts\n1,b,5\n")
    with pytest.raises(BraidError, match="was changed"):
        x.read(0, 0, 1)
    (tmp_path / "a.csv").write_text("k,v,ts\n1,a,5\n2,b,6\n")
    assert x.read(0, 0, 1).rows.equals(want)  # it has grown
    other = opened(tmp_path, "a.csv", PLAIN)
    assert len(os.listdir(tmp_path / "cache")) == 3
    (tmp_path / "cache" / "x.rows~1.part").write_text("left by a crash")
    (tmp_path / "cache" / "notes.txt").write_text("not ours")
    clean(tmp_path / "cache", [other])
    assert len(os.listdir(tmp_path / "cache")) == 2 and (tmp_path / "cache" / "notes.txt").exists()
    clean(tmp_path / "nowhere", [])


def test_an_alias_shares_what_is_made(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,v\n1,a\n")
    opened(tmp_path, "a.csv", PLAIN)
    renamed = tuple(SourceColumn("Y" + c.name[1:], c.field, c.column, c.place) for c in PLAIN.columns)
    y = opened(tmp_path, "a.csv", Source("Y", "S", "t", "stream", renamed, Encoding()))
    assert len(os.listdir(tmp_path / "cache")) == 1 and y.read(0, 0, 1).rows["Y.V"].to_list() == ["a"]


def test_what_cannot_be_read_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "flights.csv").write_text("k,value\n1,a\n")
    (tmp_path / "twice.csv").write_text("k,v,V,v\n1,a,b,c\n")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "sub").mkdir()
    assert "flights.csv" in str(refused("there is no file", tmp_path, "flight.csv", PLAIN).hint)
    refused("no file matches", tmp_path, "*.parquet", PLAIN)
    refused("no file matches", tmp_path, "sub/*", PLAIN)
    refused("there is no folder", tmp_path, "nowhere/a.csv", PLAIN)
    refused("is a folder", tmp_path, "sub", PLAIN)
    assert ".parquet" in str(refused("what kind of file", tmp_path, "notes.txt", PLAIN).hint)
    assert "it has k, value" in str(refused("has no column V", tmp_path, "flights.csv", PLAIN).hint)
    near = source([("K", S.INT, "key"), ("VALU", S.VARCHAR, "value")])
    assert "did you mean value" in str(refused("has no column VALU", tmp_path, "flights.csv", near).hint)
    refused("has 2 columns v", tmp_path, "twice.csv", source([("v", S.VARCHAR, "value")]))


def test_names_are_taken_as_they_are_where_they_exist(tmp_path: Path) -> None:
    (tmp_path / "a[1].csv").write_text("k,v\n1,a\n")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "b.csv").write_text("k,v\n2,b\n")
    assert [f.name for f in opened(tmp_path, "a[1].csv", PLAIN).files] == ["a[1].csv"]
    assert [f.name for f in opened(tmp_path, "deep/**/*.csv", PLAIN).files] == ["er/b.csv"]


# ------------------------------------------------------- what fuzzing has found


def test_a_time_that_no_timestamp_holds_is_malformed(tmp_path: Path) -> None:
    store = TopicStore(store_in(tmp_path))
    store.create("t")
    line = '{"key":1,"value":{"V":"a"},"timestamp":%d}'
    times = [10, 2**63 - 1, -(2**63), MAX_TIME, MAX_TIME - 1]
    store.append_lines("t", [line % t for t in times])
    d = TopicInput(store, PLAIN).read(0, 0, 5)
    assert values(d, "_t") == [10, 10, 10, 10, times[-1]]  # the others move no clock
    assert d.error.to_list() == [None, *(f"the timestamp {t} is out of range" for t in times[1:4]), None]
    with pytest.raises(BraidError, match="whole milliseconds"):
        store.append("t", [{"key": 1, "value": None, "timestamp": 2**63}])


def test_headers_that_are_no_pairs_cost_only_their_record(tmp_path: Path) -> None:
    columns: list[tuple[str, Type, Place]] = [("K", S.BIGINT, "key"), ("h", S.BYTES, "header")]
    store = TopicStore(store_in(tmp_path))
    store.create("t")
    headers = ['[["h","YQ=="]]', '[["h","x"]]', '[["h"]]', "[1]", '[["h",null],]', '[ ["h" , null] ]']
    store.append_lines("t", [f'{{"key":1,"value":{{}},"timestamp":1,"headers":{h}}}' for h in headers])
    d = TopicInput(store, source(columns)).read(0, 0, 6)
    assert [e is None for e in d.error.to_list()] == [True, False, False, False, False, True]
    assert values(d, "h") == [b"a", None, None, None, None, None]


def test_a_delimited_line_in_quotes_that_is_no_json_string(tmp_path: Path) -> None:
    store = TopicStore(store_in(tmp_path))
    store.create("t")
    store.append_lines("t", [f'{{"key":1,"value":{v},"timestamp":1}}' for v in (r'"a,1"', r'"a\x,1"', r'"\ud800,2"')])
    plain = source([("V", S.VARCHAR, "value"), ("N", S.BIGINT, "value")])
    lines = Source(plain.name, plain.alias, "t", "stream", plain.columns, Encoding(key="NONE", value="DELIMITED"))
    d = TopicInput(store, lines).read(0, 0, 3)
    assert [e is None for e in d.error.to_list()] == [True, False, True]
    assert values(d, "N") == [1, None, 2]


def test_a_header_with_a_carriage_return_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_bytes(b"K,V\r1,a\r")
    with pytest.raises(BraidError, match="carriage return"):
        open_files(PLAIN, str(tmp_path / "f.csv"), tmp_path / "c")


def _few_columns(kind: str, lines: Sequence[dict[str, Any]]) -> bytes:
    if kind == "csv":
        out = io.StringIO()
        made = csv.DictWriter(out, ["K", "V", "TS", "more", "x", "gone"], lineterminator="\n")
        made.writeheader()
        made.writerows(lines)
        return out.getvalue().encode()
    return "".join(json.dumps(x) + "\n" for x in lines).encode()


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("odd", [{}, {"more": None}, {"x": "no number"}, {"TS": "no time"}, {"TS": None}, {"K": None}])
def test_what_a_query_does_not_need_is_shown_of_what_is_dropped(
    kind: str, deleted: bool, odd: dict[str, Any], tmp_path: Path
) -> None:
    """Texts, errors and times are those of all columns, and malformed is what is malformed in any."""
    columns: list[tuple[str, Type, Place]] = [
        ("K", S.INT, "key"),
        ("V", S.VARCHAR, "value"),
        ("TS", S.VARCHAR, "value"),
    ]
    s = source([*columns, ("more", S.VARCHAR, "value"), ("x", S.BIGINT, "value")], "TS")
    rows = [
        {
            "K": i,
            "V": f"v{i}",
            "TS": f"2024-03-01T00:00:{i % 60:02}",
            "more": "ü",
            "x": i,
            "gone": "t" if i % 7 == 0 else "f",
        }
        for i in range(50)
    ]
    rows[20] |= odd
    (tmp_path / f"f.{kind}").write_bytes(_few_columns(kind, rows))
    options = {"deleted": "gone"} if deleted else {}
    whole = opened(tmp_path, f"f.{kind}", s, options=options)
    few = FileInput(s, whole.log, whole.options, str(tmp_path / "few"), frozenset({"V"}))
    a, b = whole.read(0, 0, 50), pickle.loads(pickle.dumps(few)).read(0, 0, 50)
    assert {"X.K", "X.more", "X.x"}.isdisjoint(b.rows.columns)
    assert b.rows.equals(a.rows.select(b.rows.columns)) and b.error.equals(a.error)
    assert [few.cut(0, 0, t) for t in (0, 1709251215000)] == [whole.cut(0, 0, t) for t in (0, 1709251215000)]
    assert not odd or deleted or a.rows["_value"].null_count() < 50
    sizes = [sum(f.stat().st_size for f in (tmp_path / x).glob("*.rows")) for x in ("few", "cache")]
    assert sizes[0] < sizes[1]


def test_a_log_of_digests_of_another_kind_is_read_on(tmp_path: Path) -> None:
    """A log of the format before: its pieces are known by BLAKE2b, new ones by what is quicker; a changed byte is seen
    under both."""
    import hashlib

    path = tmp_path / "f.jsonl"
    path.write_text('{"K":1,"V":"a"}\n')
    old = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    (new,) = opened(tmp_path, "f.jsonl", PLAIN).files
    assert new.digest.startswith("crc32:")
    log = FileLog(None, str(tmp_path), pieces=[replace(new, digest=old)])
    x = FileInput(PLAIN, log, reading({}), str(tmp_path / "again"))
    assert values(x.read(0, 0, 1), "V") == ["a"]
    for digest in (old, new.digest):
        path.write_text('{"K":1,"V":"b"}\n')
        log = FileLog(None, str(tmp_path), pieces=[replace(new, digest=digest)])
        with pytest.raises(BraidError, match="was changed since it was first seen"):
            FileInput(PLAIN, log, reading({}), str(tmp_path / f"changed {digest[:5]}")).read(0, 0, 1)


def test_parts_of_a_file_end_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"".join(b"x" * (n % 9) + b"\n" for n in range(50)) + b"y" * 20000 + b"\nz")
    whole = path.read_bytes()
    for size in (1, 2, 7, 64, 5000, 1 << 16):
        for start, limit in ((0, None), (3, None), (0, 120), (5, 5), (7, len(whole) + 9)):
            parts = list(file_text.content(str(path), start, limit, size))
            assert b"".join(parts) == whole[start:limit] and all(0 < len(p) <= size for p in parts)
    assert all(p.endswith(b"\n") for p in list(file_text.content(str(path), 0, 200, 64))[:-1])
