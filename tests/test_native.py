"""The compiled core: what it reads is what the Python path reads, byte for byte; without it all is the same."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid import native
from braid.files.text import _of_json, _of_json_by_python
from braid.records import codec, compiled
from braid.topics import envelope
from braid.types import Column, Scalar
from effort import fuzzed

S = Scalar
TYPES = (S.SMALLINT, S.INT, S.BIGINT, S.TIMESTAMP, S.TIMESTAMPTZ, S.DOUBLE, S.BOOLEAN, S.VARCHAR)
NAMES = ("a", "b", "Price", "date_time", "ü", "x y", "k")
ROOT = Path(__file__).parent.parent

needs_core = pytest.mark.skipif(native.core() is None, reason=f"no compiled core: {native.loaded()[1]}")


def same(data: bytes, columns: list[Column], lenient: bool = False) -> None:
    own, python = _of_json(data, columns, lenient), _of_json_by_python(data, columns, lenient)
    for a, b in zip(own.columns, python.columns, strict=True):
        assert a.equals(b, check_dtypes=True, check_names=True), (data, a.to_list(), b.to_list())
    for a, b in ((own.error, python.error), (own.raw, python.raw)):
        assert a.equals(b, check_dtypes=True), (data, a.to_list(), b.to_list())


_SHOWN = r"""0 -0 1 -1 007 1. .5 0.5 -0.0 1e5 1E-3 1e400 1e-400 12345678901234567 123456789012345678 9223372036854775807
9223372036854775808 -9223372036854775808 32767 32768 2147483648 0.1 0.30000000000000004 9007199254740993
1.7976931348623159e308 true false null True nul NaN Infinity -Infinity + - "" "x" "\n" "\u0041" "\u0000" "\ud83d"
"\ud83d\ude00" "\uD7FF" "\x" "ü" "😀" "a\"b" "\\" "\/" "1" "1.5" "true" "NaN" {} [] [1,[2,{"a":3}]] {"a":1} {"b":"}"} [
] { 1709280000000 -9999999999999999 "2024-02-29|23:59:59.999" "2024-02-30|00:00:00" "2023-02-29T00:00:00"
"2024-03-01T00:00:00Z" "0999-01-01|00:00:00" "9999-12-31|23:59:59.999" "1969-12-31|23:59:59.001" "1900-02-29|00:00:00"
"2024-03-01T00:00:00.123456" "2024-03-01" "2024-03-01T24:00:00" "2024-13-01|00:00:00" "2024-03-01|00:00:60"
"2024-03-01T00:00:00+01:00" "2024-03-01t00:00:00z" "2024-03-01|00:00:00.1" "10000-01-01T00:00:00" ]"""
WORDS = [word.replace("|", " ") for word in _SHOWN.split()]
VALUES = st.one_of(
    st.sampled_from(WORDS),
    st.integers(-(2**64), 2**64).map(str),
    st.floats().map(json.dumps),
    st.text().map(json.dumps),
    st.text().map(lambda t: json.dumps(t, ensure_ascii=False)),
    st.datetimes().map(lambda t: json.dumps(t.isoformat(" ", "milliseconds"))),
)
MEMBERS = st.one_of(
    st.sampled_from(NAMES).map(json.dumps),
    st.sampled_from([*NAMES, "A", "PRICE", "K", "\u212a", "other", "Ü", "\\u0061"]).map(lambda n: f'"{n}"'),
)
BLANK = st.sampled_from(["", "", "", " ", "\t", "  ", "\r", "\x0b", "\u00a0"])


@st.composite
def lines(draw: Any) -> bytes:
    """One line that may be an object; sometimes bytes of it are others."""
    between = draw(st.sampled_from([(":", ","), (": ", ", "), (" :\t", " ,")]))
    members = [f"{draw(MEMBERS)}{between[0]}{draw(VALUES)}" for _ in range(draw(st.integers(0, 5)))]
    text = f"{draw(BLANK)}{{{between[1].join(members)}}}{draw(BLANK)}"
    data = bytearray(text.encode(errors="surrogatepass"))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 1))] = draw(st.binary(max_size=2))
    return bytes(data)


@st.composite
def blocks(draw: Any) -> tuple[bytes, list[Column]]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    columns = [Column(n, draw(st.sampled_from(TYPES))) for n in names]
    sound = {S.VARCHAR: '"tü"', S.BOOLEAN: "true", S.DOUBLE: "1.25", S.TIMESTAMP: '"2024-03-01 00:00:00.000"'}
    line = "{" + ",".join(f"{json.dumps(c.name, ensure_ascii=False)}:{sound.get(c.type, '12')}" for c in columns) + "}"
    found = draw(st.lists(st.one_of(lines(), st.just(line.encode()), st.just(b""), st.binary(max_size=9)), max_size=8))
    return b"\n".join(found) + draw(st.sampled_from([b"", b"\n", b"\n\n"])), columns


@needs_core
@settings(max_examples=fuzzed(150))
@given(blocks(), st.booleans())
def test_lines_are_those_of_the_python_path(block: tuple[bytes, list[Column]], lenient: bool) -> None:
    same(*block, lenient)


@needs_core
@settings(max_examples=fuzzed(150))
@given(blocks(), st.data())
def test_columns_that_are_not_wanted_are_looked_at(block: tuple[bytes, list[Column]], data: st.DataObject) -> None:
    lines, columns = block
    wanted = data.draw(st.sets(st.integers(0, len(columns) - 1)))
    whole, few = compiled.json_lines(lines, columns), compiled.json_lines(lines, columns, wanted)
    if whole is None or few is None:
        assert whole is few and not lines
        return
    assert (whole.how == few.how).all() and (whole.ends == few.ends).all()
    no_null = not any(c.null_count() for c in whole.columns)
    assert few.full == whole.full == (no_null and bool((whole.how == compiled.READ).all()))
    for i, (a, b) in enumerate(zip(whole.columns, few.columns, strict=True)):
        assert b.equals(a) if i in wanted else b.null_count() == len(a)


@needs_core
@settings(max_examples=fuzzed(60))
@given(blocks(), st.sampled_from(["plain", "iso", "texts", "lenient", "lenient iso"]))
def test_values_of_records_are_those_of_the_python_path(block: tuple[bytes, list[Column]], manner: Any) -> None:
    """As topics have them: nulls among them, one or several lines in a text."""
    data, columns = block
    some: list[str | None] = [line.decode(errors="replace") for line in data.split(b"\n")]
    for texts in (some * 70, [*some * 70, None, "null"], [*some * 70, data.decode(errors="replace")]):
        values = pl.Series("v", texts, dtype=pl.String)
        own, python = (codec.decode_values(values, columns, manner=manner, by_core=x) for x in (True, False))
        for a, b in zip((own[0], *own[1:]), (python[0], *python[1:]), strict=True):
            assert a.equals(b), (texts[:10], manner)
        assert own[0].schema == python[0].schema


@needs_core
@pytest.mark.parametrize("t", TYPES, ids=str)
def test_each_value_under_each_type(t: Scalar) -> None:
    """Alone, so that no other value decides."""
    column = [Column("a", t)]
    for word in WORDS:
        same(f'{{"a":{word}}}\n'.encode(), column)
        same(f'{{"o" : {word}, "a": null}}\r\n'.encode(), column, lenient=True)
    same("".join(f'{{"a":{word}}}\n' for word in WORDS).encode(), column)


@needs_core
@pytest.mark.parametrize("blanks", [(",", ":"), (", ", ": ")], ids=["dense", "as json.dumps writes them"])
def test_what_programs_write_is_read_by_the_core(blanks: tuple[str, str]) -> None:
    """Nulls, escapes, another order, members nobody declared: no line is left to Python."""
    columns = [
        Column(n, t)
        for n, t in zip("abcdef", (S.BIGINT, S.VARCHAR, S.DOUBLE, S.BOOLEAN, S.TIMESTAMP, S.INT), strict=True)
    ]
    rows: list[dict[str, Any]] = [
        {"a": 1, "b": 'x\ny "q" ü', "c": 1.5, "d": True, "e": "2024-03-01 00:00:00.123", "f": -7},
        {"f": 2, "e": 1709280000000, "d": False, "c": 3, "b": None, "a": None},
        {"other": {"deep": [1, {"a": "}"}]}, "a": 2**53, "z": "é\t", "b": ""},
        {},
    ]
    data = "".join(json.dumps(r, separators=blanks) + "\n" for r in rows * 20).encode()
    found = compiled.json_lines(data, columns)
    assert found is not None and (found.how == compiled.READ).all()
    same(data, columns)


@needs_core
def test_names_in_other_letters() -> None:
    """ksqlDB writes AUCTION where a file has auction. What is exact counts before what is not."""
    columns = [Column("AUCTION", S.BIGINT), Column("At", S.TIMESTAMP), Column("X", S.INT)]
    lines = [{"auction": n, "at": 1_709_280_000_000 + n} for n in range(50)]
    lines += [
        {"auction": 1, "x": 5},
        {"auction": 1, "AUCTION": 2},
        {"Auction": 3},
        {"at": None},
        {"X": 7, "\u212a": 1},
        {},
    ]
    data = "".join(json.dumps(x) + "\n" for x in lines).encode()
    found = compiled.json_lines(data, columns)
    assert found is not None and (found.how[:50] == compiled.READ).all()
    assert found.how[50:].tolist() == [0, 0, 0, 1, 0, 1]
    same(data, columns)
    for first in ('{"a":1}', '{"A":1}', "x", "", '{"a":1,"A":2}', "[1]"):
        for other in ('{"a":3,"A":4}', '{"A":5}', '{"a":6,"a":7}', '{"\\u0041":8}', "{}"):
            same(f"{first}\n{other}\n".encode(), [Column("A", S.INT)])
            same(f"{first}\n{other}\n".encode(), [Column("A", S.INT), Column("a", S.INT)])


@needs_core
def test_columns_that_the_core_does_not_take() -> None:
    assert compiled.json_lines(b'{"a":1}\n', [Column("a", S.DATE)]) is None
    assert compiled.json_lines(b'{"a":1}\n', []) is None
    same(b'{"a":19783}\n', [Column("a", S.DATE)])


PARTS = ("key", "value", "timestamp", "headers", "window")
FIELDS = st.one_of(
    st.sampled_from(PARTS).map(json.dumps),
    st.sampled_from(["Key", "VALUE", "other", "\\u006bey", "timestam\u0440"]).map(lambda n: f'"{n}"'),
)
IN_LINES = st.one_of(
    VALUES,
    st.sampled_from(
        [
            '{"a": 1, "value":2}',
            '"a\\",\\"value\\":1"',
            "[" * 40 + "]" * 40,
            "[" * 9 + "]" * 9,
            '[["h", "aGk="]]',
            "[1,2]",
            f"{'9' * 50}",
            "8207999999999999",
            "8208000000000000",
            "-8208000000000000",
            "-8208000000000001",
        ]
    ),
)


@st.composite
def records(draw: Any) -> str | None:
    """One line of a topic, as a program writes it or as it must not be."""
    between = draw(st.sampled_from([(":", ","), (": ", ", "), (" :\t", " ,")]))
    times = st.integers(-(2**53), 2**53).map(str)
    sound = [("key", draw(IN_LINES)), ("value", draw(IN_LINES)), ("timestamp", draw(times))]
    members = [(f'"{name}"', value) for name, value in sound if draw(st.integers(0, 9))]
    members += draw(st.lists(st.tuples(FIELDS, IN_LINES), max_size=2 if draw(st.booleans()) else 0))
    if draw(st.integers(0, 3)) == 0:
        members = draw(st.permutations(members))
    text = f"{draw(BLANK)}{{{between[1].join(f'{n}{between[0]}{v}' for n, v in members)}}}{draw(BLANK)}"
    return draw(st.sampled_from([text, text, text, text, text[:-1], text + "x", "", None]))


@needs_core
@settings(max_examples=fuzzed(150))
@given(st.lists(records(), min_size=1, max_size=8))
def test_lines_of_topics_are_those_of_the_python_path(found: list[str | None]) -> None:
    some = [None if x is None else x.encode(errors="replace").decode() for x in found]
    lines = pl.Series("_line", some * 100, dtype=pl.String)
    with pytest.MonkeyPatch.context() as m:
        m.setattr(envelope, "topic_lines", lambda *_: None)
        python = envelope.parse_envelope(lines)
    own = envelope.parse_envelope(lines)
    assert own.schema == python.schema
    assert own.equals(python), (some, own.head(8).to_dicts(), python.head(8).to_dicts())


@needs_core
def test_lines_that_are_written_are_read_by_the_core() -> None:
    """Those of Braid and of `json.dumps`; tombstones, records without a key. Not those with headers."""
    values: list[Any] = [{"a": [1, {"b": "}"}], "c": 1.5}, "ü", None, 7]
    made: list[dict[str, Any]] = [
        {"key": k, "value": v, "timestamp": -1 + n} for n, v in enumerate(values) for k in (None, 1, "x", {"a": 1})
    ]
    for blanks in ((",", ":"), (", ", ": ")):
        lines = [json.dumps(x, separators=blanks, ensure_ascii=False) for x in made] * 10
        others = [made[0] | {"headers": [["h", None]]}, made[0] | {"headers": -8}, made[0] | {"window": 7}]
        for some, count in ((lines, 160), ([*lines, *map(json.dumps, others)], 160)):
            read = envelope._by_core(pl.DataFrame({"line": some}).with_row_index("row"))
            assert read is not None and read[1].sum() == count
            errors = envelope.parse_envelope(pl.Series(some))["error"].drop_nulls()
            told = ["headers are a list of [name, base64]", "a window is [start, end], in milliseconds"]
            assert errors.to_list() == (told if len(some) > count else [])


def test_without_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "core", lambda: None)
    assert compiled.json_lines(b'{"a":1}\n', [Column("a", S.INT)]) is None
    before = native.LINES.python
    rows = _of_json(b'{"a":1}\n{"a":x}\n', [Column("a", S.INT)], False)
    assert rows.columns[0].to_list() == [1, None] and native.LINES.python == before + 2


@pytest.mark.parametrize("what", ["off", "missing", "other sources", "damaged", "no library"])
def test_a_core_that_cannot_be_taken_is_not(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "HERE", tmp_path)
    monkeypatch.delenv(native.OFF, raising=False)
    path = tmp_path / native.LIBRARY
    if what == "no library":
        path.write_bytes(b"\x7fELF, cut short")
    if what in ("other sources", "damaged"):
        if native.core() is None:
            pytest.skip("no compiled core")
        shutil.copy(ROOT / "src" / "braid" / native.LIBRARY, path)
    if what != "missing" and path.exists():
        path.with_suffix(".source").write_text(f"{'0' * 32} {hashlib.sha256(path.read_bytes()).hexdigest()}")
    if what == "damaged":  # cut in half: to load it would end the process
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    if what == "off":
        monkeypatch.setenv("BRAID_NATIVE", "0")
    core, why = native.loaded.__wrapped__()
    words = {
        "off": "BRAID_NATIVE is 0",
        "missing": "not built",
        "other sources": "other sources",
        "damaged": "not as it was built",
        "no library": "loaded",
    }
    assert core is None and words[what] in why


def test_a_build_that_fails_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cargo, and one that fails."""
    monkeypatch.delenv(native.OFF, raising=False)
    for kind in ("none", "fails"):
        place = tmp_path / kind
        shutil.copytree(ROOT / "native", place / "native", ignore=shutil.ignore_patterns("target"))
        (place / "src" / "braid").mkdir(parents=True)
        (place / "bin").mkdir()
        if kind == "fails":
            (place / "bin" / "cargo").write_text("#!/bin/sh\necho 'error: too old' >&2; exit 101\n")
            (place / "bin" / "cargo").chmod(0o700)
        env = (
            {**os.environ, "PATH": f"{place / 'bin'}:/bin"}
            if kind == "fails"
            else {**os.environ, "PATH": str(place / "bin")}
        )
        said = subprocess.run(
            [sys.executable, str(place / "native" / "build.py")], env=env, capture_output=True, text=True, check=False
        )
        why = "error: too old" if kind == "fails" else "cargo is not there"
        assert (
            said.returncode == 0
            and said.stderr == f"without the compiled core ({why}): Braid does the same in Python\n"
        )
        assert not list((place / "src" / "braid").iterdir())


def test_the_digest_is_the_builders() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import build; print(build.digest())"],
        cwd=ROOT / "native",
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == native.expected()
