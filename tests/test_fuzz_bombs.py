"""Small things that ask for much: patterns, texts that grow, lines and files without end. Soon done, or refused."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import resource
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braid.errors import BraidError, SqlError
from braid.expr import arithmetic
from braid.files.input import open_files
from braid.files.text import Text
from braid.store import opened
from braid.testing.driver import Driver
from braid.topics import TopicStore
from cli_help import braid
from effort import fuzzed
from test_inputs import PLAIN, values

pytestmark = pytest.mark.heavy

SECONDS = 10.0  # of this process
DECLARED = "CREATE STREAM s (k INT KEY, v STRING, p STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);"


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    started = time.process_time()
    yield
    assert time.process_time() - started < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 6 << 20  # KiB


def limited(what: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(what, (most, most))


def command(*words: str, stdin: str = "", limit: Callable[[], None]) -> tuple[int, str]:
    """A command under a limit of the system; its exit code, and what it says of an error."""
    all_words = [sys.executable, "-m", "braid", *words]
    done = subprocess.run(all_words, input=stdin, capture_output=True, text=True, preexec_fn=limit, check=False)
    assert "internal error" not in done.stderr and "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


def test_a_disk_without_room_is_named_and_nothing_is_added(tmp_path: Path) -> None:
    """Here a file may not grow beyond 100 KiB; on a full disk the system says so in the same way."""
    store = str(tmp_path / "s")
    record = json.dumps({"key": 1, "value": {"V": "x" * 1000}, "timestamp": 1}) + "\n"
    room = limited(resource.RLIMIT_FSIZE, 100 << 10)
    assert command("put", "t", "--store", store, stdin=record, limit=room)[0] == 0
    code, told = command("put", "t", "--store", store, stdin=record * 1000, limit=room)
    assert code == 1 and told.startswith(f"error: {store}/topics/t/.staging") and told.count("\n") == 1, told
    assert not os.listdir(f"{store}/topics/t/.staging")
    assert command("put", "t", "--store", store, stdin=record, limit=room)[0] == 0
    assert TopicStore(opened(store)).end_offsets("t") == [2]


def test_few_files_may_be_open(tmp_path: Path) -> None:
    """64, and a topic of 200 partitions."""
    store = str(tmp_path / "s")
    records = "".join(json.dumps({"key": i, "value": {"V": "x"}, "timestamp": 1}) + "\n" for i in range(500))
    few = limited(resource.RLIMIT_NOFILE, 64)
    assert command("put", "t", "--store", store, "--partitions", "200", stdin=records, limit=few)[0] == 0
    assert command("cat", "t", "--store", store, limit=few)[0] == 0
    assert sum(TopicStore(opened(store)).end_offsets("t")) == 500


READ_ONLY = (
    (("put", "t"), ".staging"),
    (("put", "new"), ".topics.lock"),
    (("reset", "O"), ".run.lock"),
    (("rm", "t"), ".run.lock"),
    (("run", "-e", f"{DECLARED} CREATE STREAM o AS SELECT * FROM s;"), ".run.lock"),
)


def test_a_disk_that_is_read_only_is_named(tmp_path: Path) -> None:
    """What only reads is done all the same."""
    record = json.dumps({"key": 1, "value": {"V": "x"}, "timestamp": 1})
    store = str(tmp_path / "s")
    assert braid("put", "t", "--store", store, stdin=record).code == 0
    mount = subprocess.run(["mount", "--bind", store, store], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip("only who may mount can make a disk read-only for root")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", store], capture_output=True, check=True)
        for words, name in READ_ONLY:
            said = braid(*words, "--store", store, stdin=record)
            assert said.code == 1 and said.err.count("\n") == 1, said
            assert said.err.startswith(f"error: {store}") and name in said.err and "Read-only" in said.err, said
        assert braid("topics", "--store", store).code == braid("cat", "t", "--store", store).code == 0
    finally:
        subprocess.run(["umount", store], check=True)


def given(expression: str, v: str, p: str, runtime: str) -> tuple[object, list[str]]:
    """The value of an expression over one record, and the reasons of what was dropped."""
    with Driver(dialect="ksqldb", runtime=runtime) as d:
        d.execute(f"{DECLARED} CREATE STREAM o AS SELECT k, {expression} AS r FROM s;")
        d.write("s", key=1, value={"V": v, "P": p}, timestamp=1)
        return d.read("o")[0].value["R"], [x["reason"] for x in d.drops("O")]


LIKE = "CASE WHEN v LIKE p THEN 1 ELSE 0 END"


@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_no_pattern_of_data_takes_for_ever(runtime: str) -> None:
    assert given(LIKE, "a" * 5000, "%a" * 300 + "%b", runtime) == (0, [])
    assert given(LIKE, "a" * 5000, "%a" * 300, runtime) == (1, [])
    assert given(LIKE, "ab" * 2000 + "c", "%a_" * 100 + "%b", runtime) == (0, [])
    assert given(LIKE, "a" * 10**6, "%" * 10**6, runtime) == (1, [])


@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_long_patterns_of_statements(runtime: str) -> None:
    assert given(f"CASE WHEN v LIKE '{'a%' * 40_000}' THEN 1 ELSE 0 END", "a" * 50_000, "", runtime) == (1, [])
    assert given(f"CASE WHEN v LIKE '{'_' * 20_000}' THEN 1 ELSE 0 END", "a" * 20_000, "", runtime) == (1, [])
    with pytest.raises(SqlError, match="the LIKE pattern has 200000 characters"):
        given(f"CASE WHEN v LIKE '{'_' * 200_000}' THEN 1 ELSE 0 END", "a", "", runtime)
    with pytest.raises(SqlError, match="the date pattern has 800000 characters"):
        given(f"FORMAT_TIMESTAMP(FROM_UNIXTIME(k), '{'y' * 800_000}')", "a", "", runtime)
    with pytest.raises(SqlError, match="too many letters"):
        given(f"FORMAT_TIMESTAMP(FROM_UNIXTIME(k), '{'y' * 400}')", "a", "", runtime)


def test_like_is_what_a_regular_expression_says() -> None:
    for i in range(fuzzed(1000, 2)):
        r = random.Random(f"like {i}")
        pattern = "".join(r.choice("ab_%%\\\n.*") for _ in range(r.randrange(7)))
        value = "".join(r.choice("ab_%\\\n.*") for _ in range(r.randrange(7)))
        for escape in (None, "\\", "a", "%"):
            regex = arithmetic.like_regex(pattern, escape)
            want = regex is not None and re.fullmatch(regex.removeprefix("(?s)^")[:-1], value, re.DOTALL) is not None
            assert arithmetic._is_like(value, pattern, escape) == want, (value, pattern, escape)


@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_texts_do_not_grow_beyond_a_record(runtime: str) -> None:
    much, grown = "a" * 1000, (None, ["expression"])
    assert given("REPLACE(REPLACE(REPLACE(REPLACE(v, 'a', v), 'a', v), 'a', v), 'a', v)", much, "", runtime) == grown
    assert given("REPLACE(v, 'a', p)", "a" * 10**6, "x" * 10**6, runtime) == grown
    assert given(f"REPLACE(v, 'a', '{'x' * 10**6}')", much, "", runtime) == grown
    assert given("LPAD(v, 2000000000, 'xy')", much, "", runtime) == grown
    assert given("REPLACE(v, 'aa', p)", "aaa", "xyz", runtime) == ("xyza", [])
    assert given("REPLACE(v, p, 'xyz')", "aaa", "", runtime) == ("xyzaxyzaxyzaxyz", [])


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.csv.gz", "x.jsonl"])
def test_a_file_of_one_line_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=1) if name.endswith("gz") else open(path, "wb") as f:
        for _ in range(200):
            f.write(b"x" * (1 << 20))
    with pytest.raises(BraidError, match=f"{name} has a line of more than 16 MiB"):
        list(Text(str(path)).blocks("," if "csv" in name else None))


def test_a_file_that_unfolds_is_read_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    line = json.dumps({"k": 1, "v": "x" * 1000}).encode() + b"\n"
    with gzip.open(path, "wb", compresslevel=1) as f:
        for _ in range(200):
            f.write(line * 1000)
    assert path.stat().st_size < 2 << 20
    sizes = [len(block) for block in Text(str(path)).blocks()]
    assert sum(sizes) == 200_000 * len(line) and max(sizes) < 18 << 20


# ------------------------------------------------------------ packed and packed again


def much() -> bytes:
    """300 MiB in one: a piece that refers to nothing before it, again and again."""
    packer, piece, count = zlib.compressobj(1, wbits=-15), bytes(1 << 20), 300
    packed = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    check = 0
    for _ in range(count):
        check = zlib.crc32(piece, check)
    head, tail = gzip.compress(b"")[:10], struct.pack("<II", check, count * len(piece))
    return head + packed * count + packer.flush() + tail


@pytest.mark.parametrize("name", ["x.csv.gz", "x.jsonl.gz", "x.csv", "x.jsonl"])
def test_what_is_packed_is_unfolded_once_at_most(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(much()) if name.endswith("gz") else much())
    said = braid("infer", str(path))
    assert said.code == 1 and f"{name} is packed, and not as its name says" in said.err, said.err
    if "jsonl" in name:
        found = open_files(PLAIN, str(path), tmp_path / "cache")
        assert found.read(0, 0, found.ends()[0]).error.is_not_null().all()
    else:
        with pytest.raises(BraidError, match=name):
            open_files(PLAIN, str(path), tmp_path / "cache")


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: zlib.compress(data, 0), zlib.compress])
def test_packed_rows_are_rows(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """A topic's file, and JSON lines, that begin as packed data does."""
    packed = pack(b'{"key": 1, "value": {"V": "a"}}\n' * 3).replace(b"\n", b"")
    (tmp_path / "f.jsonl").write_bytes(packed + b'\n{"K": 1, "V": "a"}\n')
    found = open_files(PLAIN, str(tmp_path / "f.jsonl"), tmp_path / "cache")
    assert found.ends() == [2]
    decoded = found.read(0, 0, 2)
    assert decoded.error.is_null().to_list() == [False, True] and values(decoded, "V") == [None, "a"]
    store = tmp_path / "s"
    TopicStore(opened(store)).create("t", 1)
    (store / "topics/t/0" / f"{0:020d}.jsonl").write_bytes(
        packed + b'\n{"key": 1, "value": {"V": "a"}, "timestamp": 1}\n'
    )
    said = braid("cat", "t", "--store", str(store), "--format", "jsonl")
    assert said.code == 0 and len(said.out.splitlines()) == 2 and '"a"' in said.out.splitlines()[1], said


# ------------------------------------------------------------------------ Parquet

THREE = pa.table({"K": pa.array([1, 2, 3], pa.int32()), "V": ["a", "b", "c"]})


def refused_parquet(path: Path, what: str) -> None:
    with pytest.raises(BraidError, match=f"{path.name} is not a Parquet file: .*{what}"):
        open_files(PLAIN, str(path), path.parent / "cache")
    said = braid("infer", str(path))
    assert said.code == 1 and f"{path.name} is not a Parquet file" in said.err and len(said.err) < 1000


def test_a_parquet_file_that_unfolds_is_read_where_it_is_asked_for(tmp_path: Path) -> None:
    """20,000,000 rows of 10 KB each in one row group of a small file."""
    path, n = tmp_path / "f.parquet", 20_000_000
    texts = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), n), ["x" * 10_000])
    pq.write_table(pa.table({"K": pa.repeat(pa.scalar(1, pa.int32()), n), "V": texts}), path, row_group_size=n)
    assert path.stat().st_size < 1 << 20
    found = open_files(PLAIN, str(path), tmp_path / "cache")
    assert found.ends() == [n]
    for first in (0, n // 2, n - 100):
        assert values(found.read(0, first, first + 100), "V") == ["x" * 10_000] * 100


def test_a_footer_is_not_believed(tmp_path: Path) -> None:
    """Counts of rows and values of 2^40, negative ones, a footer of 2 GiB, no end, a file of 20 GB without one."""
    path = tmp_path / "f.parquet"
    pq.write_table(THREE, path, store_schema=False, compression="none", use_dictionary=False)
    data = path.read_bytes()
    end = len(data) - 8
    begin = end - int.from_bytes(data[end : end + 4], "little")
    footer, three = data[begin:end], b"\x16\x06"  # 3, as an i64 of Thrift

    def written(new: bytes) -> Path:
        path.write_bytes(data[:begin] + new + len(new).to_bytes(4, "little") + b"PAR1")
        return path

    many = b"\x16" + bytes([0x80] * 5) + b"\x40"  # 2^40
    refused_parquet(written(footer.replace(three, many, 1)), "claims 1099511627776 rows")
    refused_parquet(written(footer.replace(three, b"\x16\x05", 1)), "")
    claims = written(footer.replace(three, many))
    with pytest.raises(BraidError, match=r"f\.parquet is not a Parquet file"):
        found = open_files(PLAIN, str(claims), tmp_path / "cache")
        found.read(0, 0, 10)
    path.write_bytes(data[:end] + (1 << 31).to_bytes(4, "little") + b"PAR1")
    refused_parquet(path, "footer claims 2147483648 bytes")
    path.write_bytes(data[: len(data) // 2])
    refused_parquet(path, "does not end with PAR1")
    os.truncate(path, 20 << 30)
    refused_parquet(path, "does not end with PAR1")


@pytest.mark.parametrize("claimed", [b"\x7b", b"\x05", b"\x08"])
def test_heads_of_pages_are_not_believed(claimed: bytes, tmp_path: Path) -> None:
    """Of three values a page claims -62, -3 or 4: the reader would ask for memory that there is not, and end us."""
    path = tmp_path / "f.parquet"
    pq.write_table(THREE, path, store_schema=False)
    data = path.read_bytes()
    head = b",\x15\x06\x15\x10"  # of a page of data: how many values, in which encoding
    assert data.count(head) == 2
    path.write_bytes(data.replace(head, b",\x15" + claimed + head[3:], 1))
    with pytest.raises(BraidError, match=r"f\.parquet is not a Parquet file: a page up to byte \d+ claims"):
        open_files(PLAIN, str(path), tmp_path / "cache")


def test_parquet_files_are_neither_too_wide_nor_too_deep(tmp_path: Path) -> None:
    names = {f"c{i}": pa.nulls(1, pa.int8()) for i in range(12_000)}
    pq.write_table(pa.table({**names, "K": [1], "V": ["a"]}), tmp_path / "wide.parquet", store_schema=False)
    refused_parquet(tmp_path / "wide.parquet", "it has 12002 columns, 10000 are the most")
    deep: pa.DataType = pa.int32()
    for _ in range(200):
        deep = pa.struct([("a", deep)])
    pq.write_table(pa.table({"K": [1], "V": pa.nulls(1, deep)}), tmp_path / "deep.parquet", store_schema=False)
    refused_parquet(tmp_path / "deep.parquet", "nested")


def test_damaged_parquet_files_are_refused_by_name(tmp_path: Path) -> None:
    """Or read, where the damage is none that anybody can see."""
    pq.write_table(THREE, tmp_path / "whole.parquet", store_schema=False)
    whole = (tmp_path / "whole.parquet").read_bytes()
    refused = 0
    for i in range(fuzzed(20, 5)):
        r = random.Random(f"parquet {i}")
        data = bytearray(whole)
        for _ in range(r.choice((1, 1, 3))):
            data[r.randrange(len(data))] = r.randrange(256)
        path = tmp_path / f"{i}.parquet"
        path.write_bytes(bytes(data))
        try:
            found = open_files(PLAIN, str(path), tmp_path / "cache")
            found.read(0, 0, found.ends()[0])
        except BraidError as e:
            assert path.name in str(e)
            refused += 1
    assert refused


def test_many_statements_are_read_soon(tmp_path: Path) -> None:
    """Each is compared with all that stand: their words are taken apart once."""
    path = tmp_path / "many.sql"
    one = "CREATE STREAM s{} (k INT KEY) WITH (kafka_topic='l', value_format='JSON');\n"
    path.write_text("".join(one.format(i) for i in range(1000)))
    said = braid("check", str(path), "--dialect", "ksqldb")
    assert said.code == 0 and "1000 statements, no problem" in said.out, said
