"""A real PostgreSQL against risingwave's views and batch queries: the same expressions over the same rows.

In: forms, a seed. Out: what differs.
Rule: a value is compared as text, with its type. Where PostgreSQL gives an error a view has NULL and tells it, and a
batch query is refused. NUMERIC values are compared to the digits that both show: the scale of Braid's is that of the
type (docs/dialects/risingwave.md, "Digits of NUMERIC").
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

import psycopg

from braid.bind.risingwave.expressions import usual_name
from braid.errors import BraidError
from braid.testing import Driver
from braid.types import Array, Scalar, Type
from braid.types import Decimal as Numeric
from postgres.forms import BY_PATH, Form, is_judged
from postgres.values import NAMES, TYPES, constant

S = Scalar
ERROR = "\x01"
_MICROS = re.compile(r"(\.[0-9]{1,3})[0-9]*")
_ZEROS = re.compile(r"(\.[0-9]*?)0+(?![0-9])")
_NO_FUNCTION = "42883"
LAST_YEAR = 262_071
EACH = 3  # columns of each type
_EXACT = Context(prec=1000, rounding=ROUND_HALF_UP)


@dataclass(frozen=True, slots=True)
class Difference:
    form: str
    row: int
    given: str
    postgres: str | None
    braid: str | None
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.form}  of {self.given}: PostgreSQL {self.postgres!r}, Braid {self.braid!r}"


def column(t: Type, n: int) -> str:
    """The n-th column of a type."""
    return f"c{list(TYPES.values()).index(t)}_{n}"


def columns_of(form: Form) -> list[str]:
    seen: dict[Type, int] = {}
    made = []
    for t in form.types:
        n = seen.get(t, 0)
        seen[t] = n + 1
        made.append(column(t, n % EACH))
    return made


class Bench:
    """One table of random rows in PostgreSQL and in Braid."""

    def __init__(self, connection: psycopg.Connection, rows: int, seed: int) -> None:
        self.pg, self.rows = connection, rows
        draw = random.Random(seed)
        columns = [(column(t, n), name, t) for name, t in TYPES.items() for n in range(EACH)]
        self.values = [[constant(t, draw) for _, _, t in columns] for _ in range(rows)]
        self.names = [c for c, _, _ in columns]
        declared = ", ".join(f"{c} {name}" for c, name, _ in columns)
        self.table = f"CREATE TABLE t (id INT PRIMARY KEY, {declared});"
        lines = [f"({i}, {', '.join(row)})" for i, row in enumerate(self.values)]
        self.inserts = f"INSERT INTO t VALUES {', '.join(lines)};"
        connection.execute("DROP TABLE IF EXISTS t")
        connection.execute(self.table)  # type: ignore[call-overload]
        connection.execute(self.inserts)  # type: ignore[call-overload]

    def given(self, form: Form, row: int) -> str:
        return ", ".join(self.values[row][self.names.index(c)] for c in columns_of(form))

    def is_infinite(self, form: Form, row: int) -> bool:
        """Whether a nested expression makes a time of an infinite number, which it may hide."""
        return form.name == "nested" and "to_timestamp(double" in str(form) and "Infinity" in self.given(form, row)

    def postgres(self, forms: Sequence[Form]) -> dict[Form, list[tuple[str | None, str]]]:
        """For each row the value, or `ERROR` and why, and the type."""
        found: dict[Form, list[tuple[str | None, str]]] = {}
        for form in forms:
            text = form.over(*columns_of(form)).replace("%", "%%").replace("'", "''")
            asked = f"SELECT tried(format('SELECT ({text})::text FROM t WHERE id = %s', id)) FROM t ORDER BY id"
            values = [r[0] for r in self.pg.execute(asked).fetchall()]  # type: ignore[call-overload]
            none = "(SELECT * FROM t LIMIT 0) x RIGHT JOIN (SELECT 1) y ON true"
            prepared = f"SELECT pg_typeof({form.over(*columns_of(form))})::text FROM {none}"
            try:
                t = self.pg.execute(prepared).fetchone()[0].replace("character varying", "text")  # type: ignore[call-overload, index]
            except psycopg.Error:
                t = ""
            found[form] = [(v, t) for v in values]
        return found


def judged(bench: Bench, forms: Sequence[Form], each: int = 20, placed: bool = False) -> Iterator[Difference]:
    """What differs. `placed`: also where values decide (`places`)."""
    from postgres.places import placed as in_places

    forms = [f for f in forms if is_judged(f)]
    found = bench.postgres(forms)
    forms = [f for f in forms if not (f.name == "nested" and _only_risingwave(found[f]))]
    known = {
        f: [(f"{ERROR}no time is infinite" if bench.is_infinite(f, i) else _held(v, f.result), t)
            for i, (v, t) in enumerate(found[f])]
        for f in forms
    }  # fmt: skip
    with Driver(dialect="risingwave") as d:
        d.execute(bench.table)
        d.execute(bench.inserts)
        for start in range(0, len(forms), each):
            some = forms[start : start + each]
            yield from _some(bench, some, known, d, f"v{start}")
            if placed:
                plain = {f: [None if v is None or v.startswith(ERROR) else v for v, _ in known[f]] for f in some}
                some = [f for f in some if f.name not in BY_PATH]
                some = [
                    f for f in some if f.name != "nested" or not any((v or "").startswith(ERROR) for v, _ in known[f])
                ]
                yield from in_places(bench, some, d, plain, f"p{start}")


def _only_risingwave(rows: list[tuple[str | None, str]]) -> bool:
    """Whether there is something in a nested expression that PostgreSQL does not have."""
    return any(v == f"{ERROR}{_NO_FUNCTION}" for v, _ in rows)


def _held(value: str | None, t: Type) -> str | None:
    """A number with more digits in front of the point than the type of the result holds is an error here."""
    if value in ("infinity", "-infinity"):
        return f"{ERROR}no {t} is infinite"
    if (
        value is not None
        and not value.startswith(ERROR)
        and t in (S.DATE, S.TIMESTAMP, S.TIMESTAMPTZ)
        and int(value.split("-")[0] or 0) > LAST_YEAR
    ):
        return f"{ERROR}no {t} is so late"
    if value is None or value.startswith(ERROR) or not isinstance(t, Numeric):
        return value
    number = Decimal(value)
    if (
        not number.is_finite()
        or number.adjusted() > t.precision
        or abs(_EXACT.quantize(number, Decimal(1).scaleb(-t.scale))) >= 10 ** (t.precision - t.scale)
    ):
        return f"{ERROR}no {t} holds {value}"
    return value


def _some(
    bench: Bench, forms: Sequence[Form], known: dict[Form, list[tuple[str | None, str]]], d: Driver, name: str
) -> Iterator[Difference]:
    items = ", ".join(f"({_shown(f)}) AS x{i}" for i, f in enumerate(forms))
    d.execute(f"CREATE MATERIALIZED VIEW {name} AS SELECT id, {items} FROM t;")
    texts = ", ".join(f"x{i}::varchar" for i in range(len(forms)))
    views = sorted(d.query(f"SELECT id, {texts} FROM {name}"))
    for i, form in enumerate(forms):
        found = [r[i + 1] for r in views]
        yield from _compared(bench, form, known[form], found, "view")
        yield from _batch(bench, form, known[form], d)


def _shown(form: Form) -> str:
    text = form.over(*columns_of(form))
    return f"{text}::varchar" if form.result is S.INTERVAL else text


def _batch(bench: Bench, form: Form, known: list[tuple[str | None, str]], d: Driver) -> Iterator[Difference]:
    bad = [i for i, (v, _) in enumerate(known) if v is not None and v.startswith(ERROR)]
    bad = [i for i in bad if not _told_apart(bench, form, i)]
    good = [i for i in range(bench.rows) if i not in bad and not _told_apart(bench, form, i)]
    text = f"{_shown(form)}::varchar"
    if good:
        listed = ", ".join(map(str, good))
        try:
            rows = sorted(d.query(f"SELECT id, ({text}) FROM (SELECT * FROM t WHERE id IN ({listed})) t"))
        except BraidError as e:
            yield Difference(str(form), good[0], "some row", "values", f"refused: {e.message}", "batch")
            return
        found: list[str | None] = [None] * bench.rows
        for i, v in rows:
            found[i] = v
        yield from _compared(bench, form, known, found, "batch")
    if form.name == "nested" and not good:
        return  # PostgreSQL computes constants before it asks whether anybody needs them
    for i in bad[:2]:
        try:
            got = d.query(f"SELECT {text} FROM (SELECT * FROM t WHERE id = {i}) t")
        except BraidError:
            continue
        yield Difference(str(form), i, bench.given(form, i), known[i][0], repr(got), "batch")


def _compared(
    bench: Bench, form: Form, known: list[tuple[str | None, str]], found: Sequence[str | None], where: str
) -> Iterator[Difference]:
    wanted = named(form.result)
    if known and known[0][1] and known[0][1] != wanted:
        yield Difference(str(form), 0, "types", known[0][1], wanted, where)
    for i, ((value, _), mine) in enumerate(zip(known, found, strict=True)):
        if _told_apart(bench, form, i):
            continue
        if form.name == "nested" and value is not None and value.startswith(ERROR):
            continue  # what stands around the node that fails may know an answer: coalesce(10 / a, -1)
        theirs = None if value is None or value.startswith(ERROR) else value
        if theirs is not None and where == "view":
            theirs = kept(theirs, form.result)
        if theirs is not None and S.TIMESTAMPTZ in (*form.types, form.result):  # as RisingWave writes it
            theirs = theirs.replace("+00", "+00:00")
        if theirs != mine and not _equal(theirs, mine, form.result):
            yield Difference(str(form), i, bench.given(form, i), value, mine, where)


def _told_apart(bench: Bench, form: Form, i: int) -> bool:
    """Whether the page's table tells of such a path: one that is empty, or has a NULL that is not reached."""
    given = bench.given(form, i) if form.name in BY_PATH else ""
    return "NULL" in given or "'{}'::varchar[]" in given


def kept(text: str, t: Type) -> str:
    """A time as it is kept: to the millisecond."""
    if t not in (S.TIME, S.TIMESTAMP, S.TIMESTAMPTZ):
        return text
    return _ZEROS.sub(lambda m: m[1].rstrip("."), _MICROS.sub(r"\1", text))


def _equal(a: str | None, b: str | None, t: Type) -> bool:
    """Numbers to the digits that both show."""
    if a is None or b is None:
        return False
    if t is S.JSONB:  # keys are in another order
        x, y = (json.loads(text, parse_int=str, parse_float=str) for text in (a, b))
        return bool(x == y)
    if isinstance(t, Array) and isinstance(t.element, Numeric):
        pairs = list(zip(a.strip("{}").split(","), b.strip("{}").split(","), strict=False))
        return a.count(",") == b.count(",") and all(x == y or _equal(x, y, t.element) for x, y in pairs)
    if not isinstance(t, Numeric) or "NULL" in (a, b):
        return False
    x, y = Decimal(a), Decimal(b)
    if not x.is_finite() or not y.is_finite():
        return False
    scale = min(-int(x.as_tuple().exponent), -int(y.as_tuple().exponent))
    unit = Decimal(1).scaleb(-scale)
    return _EXACT.quantize(x, unit) == _EXACT.quantize(y, unit)


def named(t: Type) -> str:
    """What PostgreSQL calls a type."""
    if isinstance(t, Numeric):
        return "numeric"
    if isinstance(t, Array):
        return f"{named(t.element)}[]"
    return {
        S.VARCHAR: "text",
        S.TIME: "time without time zone",
        S.TIMESTAMP: "timestamp without time zone",
        S.TIMESTAMPTZ: "timestamp with time zone",
        S.INTERVAL: "interval",
    }.get(t) or usual_name(t)  # type: ignore[call-overload]


__all__ = ["NAMES", "Bench", "Difference", "judged"]
