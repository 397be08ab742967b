"""The same expressions where a value decides: as key of a join, in WHERE, in GROUP BY and inside aggregates.

In: forms whose values PostgreSQL has given, row by row. Out: what differs.
Rule: rows for which PostgreSQL gives an error have NULL in a view, and so meet nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal

from braid.errors import BraidError
from braid.testing import Driver
from braid.types import Array, Scalar, Type
from braid.types import Decimal as Numeric
from postgres.forms import Form, _beyond
from postgres.judge import ERROR, Bench, Difference, _equal, column, columns_of, kept, named

S = Scalar
Values = Sequence[str | None]


def placed(
    bench: Bench, forms: Sequence[Form], d: Driver, known: dict[Form, Values], name: str
) -> Iterator[Difference]:
    """`known`: PostgreSQL's value of each row, None for NULL and errors."""
    for i, form in enumerate(forms):
        if form.result is S.INTERVAL or isinstance(form.result, Array) or not form.types:
            continue
        if not _beyond(form):  # numbers that are equal here only, since they are rounded
            yield from _joined(bench, form, d, known[form], f"{name}j{i}")
        yield from _grouped(bench, form, d, known[form], f"{name}g{i}")
        if form.result is S.BOOLEAN:
            yield from _filtered(form, d, known[form], f"{name}w{i}")


def _of(form: Form, alias: str) -> str:
    return form.over(*(f"{alias}.{c}" for c in columns_of(form)))


def _same(form: Form, a: str | None, b: str | None) -> bool:
    if a is None or b is None:
        return False
    if form.result in (S.REAL, S.DOUBLE) and {a, b} == {"0", "-0"}:
        return True
    return Decimal(a) == Decimal(b) if isinstance(form.result, Numeric) else a == b


def _joined(bench: Bench, form: Form, d: Driver, values: Values, name: str) -> Iterator[Difference]:
    sql = f"SELECT a.id AS i, b.id AS j FROM t a JOIN t b ON {_of(form, 'a')} = {_of(form, 'b')}"
    ids = range(bench.rows)
    wanted = [(i, j) for i in ids for j in ids if _same(form, values[i], values[j])]
    yield from _rows(form, "key of a join", sql, wanted, d, name)


def _filtered(form: Form, d: Driver, values: Values, name: str) -> Iterator[Difference]:
    wanted = [(i,) for i, v in enumerate(values) if v == "true"]
    yield from _rows(form, "WHERE", f"SELECT id FROM t WHERE {_of(form, 't')}", wanted, d, name)


def _rows(
    form: Form, where: str, sql: str, wanted: list[tuple[int, ...]], d: Driver, name: str
) -> Iterator[Difference]:
    try:
        d.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql};")
    except BraidError as e:
        yield Difference(str(form), 0, where, "bound", e.message, "view")
        return
    found = sorted(d.query(f"SELECT * FROM {name}"))
    if found != wanted:
        odd = set(found) ^ set(wanted)
        yield Difference(
            str(form), min(odd)[0], where, f"{len(wanted)} rows", f"{len(found)} rows: {sorted(odd)[:3]}", "view"
        )


def _grouped(bench: Bench, form: Form, d: Driver, values: Values, name: str) -> Iterator[Difference]:
    """GROUP BY, count, min, max and sum."""
    text = _of(form, "t")
    asked = [f"count({text}) AS n"]
    there = [v for v in values if v is not None]
    t = named(form.result)
    wanted: list[str | None] = [str(len(there))]
    if form.result not in (S.BOOLEAN, S.BYTES, S.JSONB):
        for f in ("min", "max"):
            asked.append(f"{f}({text}) AS {f}_x")
            collate = ' COLLATE "C"' if form.result is S.VARCHAR else ""
            row = bench.pg.execute(f"SELECT {f}(v{collate})::text FROM unnest(%s::{t}[]) v", (there,)).fetchone()
            wanted.append(row[0] if row else None)
    if isinstance(form.result, Numeric) or form.result in (S.SMALLINT, S.INT, S.BIGINT):
        asked.append(f"sum({text}) AS s")
        row = bench.pg.execute(f"SELECT sum(v)::text FROM unnest(%s::{t}[]) v", (there,)).fetchone()
        wanted.append(row[0] if row else None)
    d.execute(f"CREATE MATERIALIZED VIEW {name} AS SELECT {', '.join(asked)} FROM t;")
    names = ", ".join(f"{a.rpartition(' ')[2]}::varchar" for a in asked)
    found = d.query(f"SELECT {names} FROM {name}")[0]
    zoned = S.TIMESTAMPTZ in (*form.types, form.result)
    for what, given, mine in zip(asked, wanted, found, strict=True):
        result = Numeric(38, 0) if what.startswith("sum") else form.result
        theirs = None if given is None else kept(given, form.result) if not what.startswith("count") else given
        theirs = theirs.replace("+00", "+00:00") if theirs is not None and zoned else theirs
        if theirs != mine and not _same(form, theirs, mine) and not _close(theirs, mine, result):
            yield Difference(str(form), 0, what, theirs, mine, "aggregate")


def _close(a: str | None, b: str | None, t: Type) -> bool:
    """Sums of numbers that are rounded at different places."""
    if a is None or b is None or not isinstance(t, Numeric):
        return False
    x, y = Decimal(a), Decimal(b)
    return _equal(a, b, t) or abs(x - y) <= abs(x) * Decimal("1e-12")


__all__ = ["ERROR", "Counter", "column", "placed"]
