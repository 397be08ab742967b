"""Questions in RisingWave's SQL that a batch query can answer (`batch_law.py`).

In: a `random.Random`. Out: a `Question` whose history keeps the condition under which the two are equal.
Rule: tables are changed by the same statements on both sides; what a view is made of is one text where PostgreSQL's
SQL is both, and two where it is not (windows, nearest rows, temporal joins).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from batch_expressions import E, of_type, predicate, same, value
from batch_law import Call, Finish, Question, Shape, Statement, literal, values

KINDS = ("INNER", "LEFT", "RIGHT", "FULL")
TYPE = {
    "int": "INT",
    "long": "BIGINT",
    "text": "VARCHAR",
    "double": "DOUBLE PRECISION",
    "flag": "BOOLEAN",
    "time": "TIMESTAMP",
}
KEYS = [None, 1, 1, 2, 3]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with the columns of `columns`; `key` None: without a primary key. `spare`: a row later than its watermark
    stays, so many seconds."""

    name: str
    columns: dict[str, str]
    key: str | None
    append_only: bool = False
    spare: int | None = None

    def create(self) -> str:
        columns = ", ".join(f"{c} {TYPE[type]}{' PRIMARY KEY' * (c == self.key)}" for c, type in self.columns.items())
        return f"CREATE TABLE {self.name} ({columns});\n"

    def said(self) -> str:
        if not self.append_only:
            return self.create()
        mark = f", WATERMARK FOR ts AS ts - INTERVAL '{self.spare}' SECOND" if self.spare is not None else ""
        return self.create().replace(");\n", f"{mark}) APPEND ONLY;\n")

    def read(self, alias: str | None = None) -> list[E]:
        return [same(f"{alias or self.name}.{c}", type) for c, type in self.columns.items()]


def table(rng: random.Random, name: str, keyed: bool | None = None) -> Table:
    keyed = rng.random() < 0.7 if keyed is None else keyed
    columns = {"k": "int", "g": "int", "n": "int", "s": "text"}
    for column, type in (("m", "long"), ("f", "double"), ("b", "flag")):
        if rng.random() < 0.25:
            columns[column] = type
    return Table(name, columns, "k" if keyed else None)


# ------------------------------------------------------------------ changes


def changes(rng: random.Random, tables: Sequence[Table], count: int | None = None) -> list[Call]:
    """INSERT, UPDATE and DELETE of one row or several."""
    calls: list[Call] = []
    for n in range(count or rng.choice([3, 8, 16, 25])):
        t = rng.choice(tables)
        columns = [E(c, c, type) for c, type in t.columns.items()]
        if t.append_only or rng.random() < 0.7:
            calls.append(insert(rng, t, n))
            continue
        p = predicate(rng, columns, "risingwave").sql
        if rng.random() < 0.5:
            sql = f"DELETE FROM {t.name} WHERE {p}"
        else:
            c = rng.choice([c for c in t.columns if c != t.key])
            new = rng.choice(
                [same(literal(values(rng, {c: t.columns[c]}, KEYS, n)[c]), ""), *of_type(columns, t.columns[c])]
            )
            sql = f"UPDATE {t.name} SET {c} = {new.sql} WHERE {p}"
        calls.append(Statement(f"{sql};", sql))
    return calls


def insert(rng: random.Random, t: Table, n: int, rows: int | None = None) -> Statement:
    """A row replaces that of its key."""
    made = []
    for i in range(rows or rng.choice([1, 1, 2, 4])):
        row = values(rng, {c: "key" if c in ("k", "g") else type for c, type in t.columns.items()}, KEYS, n * 10 + i)
        if t.key:
            row["k"] = rng.randint(1, 12)
        if not any(t.key and x["k"] == row["k"] for x in made):
            made.append(row)
    rest = f"INTO {t.name} VALUES {', '.join(literal(tuple(r.values())) for r in made)}"
    return Statement(f"INSERT {rest};".replace("::DOUBLE", ""), f"INSERT {'OR REPLACE ' if t.key else ''}{rest}")


def question(
    rng: random.Random, tables: Sequence[Table], view: str, duck: str, columns: Sequence[str], calls: Sequence[Call],
    before: str = "", late: bool = True
) -> Question:  # fmt: skip
    """`late`: the view may be made when its tables hold rows."""
    script = "".join(t.said() for t in tables) + before
    made = f"CREATE MATERIALIZED VIEW v AS {view};"
    at = rng.randrange(len(calls) + 1) if late and rng.random() < 0.3 else 0
    steps = (*calls[:at], Statement(made, ""), *calls[at:]) if at else tuple(calls)
    prepare, out = "".join(t.create() for t in tables), "" if at else "v"
    return Question("risingwave", (), script if at else script + made, duck, tuple(columns), (), steps, out,
                    asks=f"SELECT {', '.join(columns)} FROM v", timed=False, prepare=prepare)  # fmt: skip


# ------------------------------------------------------------------ joins


@dataclass(frozen=True, slots=True)
class Rel:
    """What stands in FROM, on both sides, and its columns."""

    sql: str
    duck: str
    columns: tuple[E, ...]
    joined: bool = False  # a join: in parentheses where it stands on the right


def leaf(rng: random.Random, t: Table, alias: str) -> Rel:
    """A table, or a sub-query over it."""
    if rng.random() < 0.2:
        columns = [E(c, c, type) for c, type in t.columns.items()]
        p = predicate(rng, columns, "risingwave").sql
        sub = f"(SELECT * FROM {t.name} WHERE {p}) AS {alias}"
        return Rel(sub, sub, tuple(t.read(alias)))
    return Rel(f"{t.name} AS {alias}", f"{t.name} AS {alias}", tuple(t.read(alias)))


def on(rng: random.Random, left: Rel, right: Rel) -> E:
    def integer(rel: Rel) -> E:
        e = rng.choice(of_type(rel.columns, "int", "long"))
        return E(f"{e.sql} + 1", f"{e.duck} + 1", e.type) if rng.random() < 0.15 else e

    a, b = integer(left), integer(right)
    word = "=" if rng.random() < 0.85 else "IS NOT DISTINCT FROM"
    terms = [E(f"{a.sql} {word} {b.sql}", f"{a.duck} {word} {b.duck}", "flag")]
    if rng.random() < 0.2:
        c, d = integer(left), integer(right)
        terms.append(E(f"{c.sql} = {d.sql}", f"{c.duck} = {d.duck}", "flag"))
    if rng.random() < 0.4:
        terms.append(predicate(rng, [*left.columns, *right.columns], "risingwave"))
    if rng.random() < 0.2:
        x, y = rng.choice(of_type(left.columns, "int")), rng.choice(of_type(right.columns, "int"))
        terms.append(E(f"{x.sql} < {y.sql}", f"{x.duck} < {y.duck}", "flag"))
    return E(" AND ".join(t.sql for t in terms), " AND ".join(t.duck for t in terms), "flag")


def join(rng: random.Random, left: Rel, right: Rel, kind: str) -> Rel:
    p = on(rng, left, right)
    sql, duck = (f"({right.sql})", f"({right.duck})") if right.joined else (right.sql, right.duck)
    sql, duck = f"{left.sql} {kind} JOIN {sql} ON {p.sql}", f"{left.duck} {kind} JOIN {duck} ON {p.duck}"
    return Rel(sql, duck, (*left.columns, *right.columns), joined=True)


def items(rng: random.Random, columns: Sequence[E]) -> dict[str, E]:
    chosen = {f"v{i}": c for i, c in enumerate(columns) if rng.random() < 0.5}
    for i in range(rng.choice([0, 1])):
        plain = of_type(columns, "int", "long", "text", "flag", "double")
        chosen[f"e{i}"] = value(rng, plain, "risingwave")
    return chosen or {"v0": columns[0]}


def select(rng: random.Random, rel: Rel, chosen: dict[str, E]) -> tuple[str, str]:
    sql = f"SELECT {', '.join(f'{e.sql} AS {n}' for n, e in chosen.items())} FROM {rel.sql}"
    duck = f"SELECT {', '.join(f'{e.duck} AS {n}' for n, e in chosen.items())} FROM {rel.duck}"
    if rng.random() < 0.25:
        p = predicate(rng, of_type(rel.columns, "int", "long", "text", "flag", "double"), "risingwave")
        sql, duck = f"{sql} WHERE {p.sql}", f"{duck} WHERE {p.duck}"
    return sql, duck


def filter_table(rng: random.Random) -> Question:
    """WHERE, DISTINCT."""
    t = table(rng, "t")
    rel = leaf(rng, t, "a")
    chosen = items(rng, rel.columns)
    sql, duck = select(rng, rel, chosen)
    if rng.random() < 0.3:
        sql, duck = (x.replace("SELECT", "SELECT DISTINCT", 1) for x in (sql, duck))
    return question(rng, [t], sql, duck, [*chosen], changes(rng, [t]))


def one_join(rng: random.Random, kind: str) -> Question:
    tables = [table(rng, name) for name in ("t", "u")]
    rel = join(rng, leaf(rng, tables[0], "a"), leaf(rng, tables[1], "b"), kind)
    chosen = items(rng, rel.columns)
    sql, duck = select(rng, rel, chosen)
    return question(rng, tables, sql, duck, [*chosen], changes(rng, tables))


def merged(rng: random.Random) -> Question:
    """USING and NATURAL: the columns that are common have one value."""
    names = rng.choice([["k"], ["g"], ["g", "k"]])
    tables = [
        Table("t", {"k": "int", "g": "int", "n": "int"}, "k"),
        Table("u", {c: "int" for c in (*names, "w")}, None),
    ]
    kind = rng.choice(KINDS)
    natural = rng.random() < 0.4
    word = f"NATURAL {kind} JOIN u" if natural else f"{kind} JOIN u USING ({', '.join(names)})"
    duck_word = f"{kind} JOIN u USING ({', '.join(names)})"
    chosen = [*names, "n", "w"]
    sql = f"SELECT {', '.join(chosen)} FROM t {word}"
    return question(rng, tables, sql, f"SELECT {', '.join(chosen)} FROM t {duck_word}", chosen, changes(rng, tables))


def chain(rng: random.Random) -> Question:
    """Two to four joins of any kind, left-deep or in parentheses; a table may stand in it twice."""
    tables = [table(rng, name) for name in ("t", "u", "w")]
    count = rng.choice([3, 3, 4, 5])
    rels = [leaf(rng, tables[i] if i < 3 else rng.choice(tables), f"x{i}") for i in range(count)]
    while len(rels) > 1:
        at = rng.choice([0, rng.randrange(len(rels) - 1)])
        rels[at : at + 2] = [join(rng, rels[at], rels[at + 1], rng.choice(KINDS))]
    chosen = items(rng, rels[0].columns)
    sql, duck = select(rng, rels[0], chosen)
    return question(rng, tables, sql, duck, [*chosen], changes(rng, tables))


def views(rng: random.Random) -> Question:
    """A view over a view and the table that both read."""
    tables = [table(rng, name) for name in ("t", "u")]
    rel = join(rng, leaf(rng, tables[0], "a"), leaf(rng, tables[1], "b"), rng.choice(KINDS))
    chosen = items(rng, rel.columns) | {"k": rel.columns[0], "n": rel.columns[2]}
    sql, duck = select(rng, rel, chosen)
    word = rng.choice(["VIEW", "MATERIALIZED VIEW"])
    below = Rel("i AS c", f"({duck}) AS c", tuple(same(f"c.{n}", e.type) for n, e in chosen.items()))
    sides = [below, leaf(rng, tables[0], "d")]
    rng.shuffle(sides)
    over = join(rng, *sides, rng.choice(KINDS))
    shown = items(rng, over.columns)
    said, asked = select(rng, over, shown)
    return question(rng, tables, said, asked, [*shown], changes(rng, tables), f"CREATE {word} i AS {sql};\n")


SPREADS = ("stddev", "stddev_pop", "stddev_samp", "var_pop", "var_samp", "variance")
BITS = ("bit_and", "bit_or", "bit_xor")
LOGICAL = ("bool_and", "bool_or")


def aggregate(rng: random.Random, columns: Sequence[E], more: bool = False) -> E:
    """A call; `more`: perhaps of different values, of those that pass a condition, or a rarer one."""
    f = rng.choice(
        ["count", "sum", "avg", "min", "max", *((*SPREADS, *BITS, *LOGICAL, "count", "sum") if more else ())]
    )
    wider = ["text", "double"] if f in ("count", "min", "max") else []
    n = predicate(rng, columns, "risingwave") if f in LOGICAL else rng.choice(of_type(columns, "int", "long", *wider))
    word = "DISTINCT " if more and rng.random() < 0.5 else ""
    behind = predicate(rng, columns, "risingwave") if more and rng.random() < 0.3 else None
    made = [f"{f}({word}{n[i]})" + ("" if behind is None else f" FILTER (WHERE {behind[i]})") for i in (0, 1)]
    if f in SPREADS:
        made = [f"round(CAST({x} AS NUMERIC(38, 9)), 4)" for x in made]
    return E(*made, "long")


def in_order(rng: random.Random, columns: Sequence[E]) -> E:
    """A call that depends on the order of its rows, which is total in DuckDB by its value."""
    n, t = rng.choice(of_type(columns, "int", "long")), rng.choice(of_type(columns, "text"))
    by, down = rng.choice(of_type(columns, "int", "long", "text")), rng.choice(["", " DESC"])
    nulls = "FIRST" if down else "LAST"
    behind = predicate(rng, columns, "risingwave") if rng.random() < 0.3 else None
    where = ["" if behind is None else f" FILTER (WHERE {behind[i]})" for i in (0, 1)]
    tie = ["", " NULLS {}, {} NULLS LAST"]
    f = rng.choice(["string", "string", "array", "disc", "cont", "first", "different"])
    made = []
    for i in (0, 1):
        text, number = f"{t[i]}", f"{n[i]}"
        order = f"ORDER BY {by[i]}{down}"
        match f:
            case "string":
                made.append(f"string_agg({text}, '-' {order}{tie[i].format(nulls, text)}){where[i]}")
            case "array":
                v = f"COALESCE({number}, -1)"
                made.append(f"array_to_string(array_agg({v} {order}{tie[i].format(nulls, v)}){where[i]}, ',')")
            case "disc":
                made.append(f"percentile_disc(0.4) WITHIN GROUP (ORDER BY {number}{down}){where[i]}")
            case "cont":
                median = f"percentile_cont(0.3) WITHIN GROUP (ORDER BY {number}{down}){where[i]}"
                made.append(f"round(CAST({median} AS NUMERIC(38, 9)), 4)")
            case "first":
                tail = tie[i].format(nulls, f"COALESCE({number}, -1)")
                made.append(f"{'first_value' if i == 0 else 'first'}(COALESCE({number}, -1) {order}{tail}){where[i]}")
            case _:
                made.append(f"string_agg(DISTINCT {text}, ',' ORDER BY {text}{down})")
    return E(*made, "text")


def group(
    rng: random.Random,
    joined: bool = False,
    whole: bool = False,
    more: bool = False,
    sets: bool = False,
    ordered: bool = False,
) -> Question:
    """`whole`: without GROUP BY; `more`: DISTINCT, FILTER and
    rarer functions; `sets`: GROUPING SETS; `ordered`: functions of rows in order, too."""
    tables = [table(rng, name) for name in ("tu" if joined else "t")]
    rel = leaf(rng, tables[0], "a")
    if joined:
        rel = join(rng, rel, leaf(rng, tables[1], "b"), rng.choice(KINDS))
    columns = of_type(rel.columns, "int", "long", "text")
    by = [] if whole else rng.sample(columns, 2 if sets else rng.choice([1, 1, 2]))
    names = [f"g{i}" for i in range(len(by))]
    chosen = {"c": same("count(*)", "long")}
    for i in range(rng.choice([1, 2, 3] if more else [1, 2])):
        chosen[f"a{i}"] = aggregate(rng, rel.columns, more)
    for i in range(rng.choice([1, 2]) if ordered else 0):
        chosen[f"o{i}"] = in_order(rng, rel.columns)
    having = rng.choice(["", "", " HAVING count(*) > 1", *([" HAVING count(*) < 2"] if whole else [])])
    words = rng.choice(["ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({0}), ({1}), ({0}, {1}))"]) if sets else ""
    if sets and "GROUPING" not in words:
        having = " HAVING count(*) > 0"  # the set of no column has its row with the first one
    different = "DISTINCT " if more and rng.random() < 0.2 else ""
    parts = []
    for which in (0, 1):
        shown = ", ".join(
            [
                *(f"{e[which]} AS {n}" for e, n in zip(by, names, strict=True)),
                *(f"{e[which]} AS {n}" for n, e in chosen.items()),
            ]
        )
        listed = [e[which] for e in by]
        keys = words.format(*listed) if "{0}" in words else (words or "{}").format(", ".join(listed))
        tail = having if whole else f" GROUP BY {keys}{having}"
        parts.append(f"SELECT {different}{shown} FROM {(rel.sql, rel.duck)[which]}{tail}")
    return question(rng, tables, *parts, [*names, *chosen], changes(rng, tables))


def different(rng: random.Random, sets: bool = False) -> Question:
    """Calls over the different values of one or two expressions, of all rows and of those that pass one condition or
    another; beside them perhaps calls over all rows."""
    t = table(rng, "t")
    rel = leaf(rng, t, "a")
    of = rng.sample(of_type(rel.columns, "int", "long", "text"), 2)[: rng.choice([1, 2])]
    passes = [predicate(rng, rel.columns, "risingwave") for _ in range(2)]
    only = rng.random() < 0.3  # none is of all rows
    chosen: dict[str, E] = {}
    for i in range(rng.choice([2, 3, 4, 5])):
        e, p = rng.choice(of), rng.choice([*passes, *([] if only else [None])])
        own = ["string"] if e.type == "text" else ["sum", "avg", "bit_xor", "var_pop", "array"]
        made = []
        f = rng.choice(["count", "count", *own])
        for which in (0, 1):
            value, behind = e[which], "" if p is None else f" FILTER (WHERE {p[which]})"
            match f:
                case "string":
                    made.append(f"string_agg(DISTINCT {value}, ',' ORDER BY {value}){behind}")
                case "array":
                    listed = f"array_agg(DISTINCT {value} ORDER BY {value} NULLS LAST){behind}"
                    made.append(f"array_to_string({listed}, ',', '-')" if which == 0 else _written(listed))
                case "var_pop":
                    made.append(f"round(CAST(var_pop(DISTINCT {value}){behind} AS NUMERIC(38, 9)), 4)")
                case _:
                    made.append(f"{f}(DISTINCT {value}){behind}")
        chosen[f"d{i}"] = E(*made, "long")
    for i in range(rng.choice([0, 0, 1, 2])):
        p = rng.choice(passes)
        e = aggregate(rng, rel.columns)
        chosen[f"a{i}"] = E(*(f"{e[w]} FILTER (WHERE {p[w]})" for w in (0, 1)), "long") if rng.random() < 0.5 else e
    by = rng.sample(of_type(rel.columns, "int", "text"), 2 if sets else rng.choice([0, 1]))
    names = [f"g{i}" for i in range(len(by))]
    if by and (sets or rng.random() < 0.5):
        chosen["c"] = same("count(*)", "long")
    parts = []
    for which in (0, 1):
        shown = ", ".join(f"{e[which]} AS {n}" for n, e in (*zip(names, by, strict=True), *chosen.items()))
        keys = ", ".join(e[which] for e in by)
        tail = f" GROUP BY {f'CUBE ({keys})' if sets else keys}" if by else ""
        parts.append(f"SELECT {shown} FROM {(rel.sql, rel.duck)[which]}{tail}{' HAVING count(*) > 0' if sets else ''}")
    return question(rng, [t], *parts, [*names, *chosen], changes(rng, [t]))


def _written(array: str) -> str:
    """A list as text, NULLs as a line, in DuckDB's words."""
    return f"array_to_string(list_transform({array}, lambda x: COALESCE(CAST(x AS VARCHAR), '-')), ',')"


def one_group(rng: random.Random) -> Question:
    """A group without GROUP BY below a join, a UNION or another group."""
    tables = [table(rng, name) for name in "tu"]
    rel = leaf(rng, tables[0], "a")
    given = {"c": same("count(*)", "long"), "m": aggregate(rng, rel.columns)}
    shown = [", ".join(f"{e[i]} AS {n}" for n, e in given.items()) for i in (0, 1)]
    one = [f"SELECT {shown[0]} FROM {rel.sql}", f"SELECT {shown[1]} FROM {rel.duck}"]
    if rng.random() < 0.3:
        one = [f"{x} HAVING count(*) {sign}" for sign in [rng.choice(["< 2", "> 1", "<> 1"])] for x in one]
    chosen = ["c", "m"]
    match rng.choice(["join", "join", "both", "union", "group"]):
        case "join":
            kind, chosen = rng.choice(KINDS), ["k", "c", "m"]
            parts = [f"SELECT b.k, x.c, x.m FROM u AS b {kind} JOIN ({x}) AS x ON b.g = x.c" for x in one]
        case "both":
            chosen = ["c", "m", "d"]
            kind = rng.choice(KINDS)
            parts = [
                f"SELECT x.c, x.m, y.d FROM ({x}) AS x {kind} JOIN (SELECT count(*) AS d FROM u) AS y ON x.c = y.d"
                for x in one
            ]
        case "union":
            parts = [f"{x} UNION ALL {x.replace('FROM t', 'FROM u')}" for x in one]
            tables[1] = replace(tables[0], name="u")
        case _:
            parts = [f"SELECT count(m) AS c, max(c) AS m FROM ({x}) AS x" for x in one]
    return question(rng, tables, *parts, chosen, changes(rng, tables, rng.choice([None, 1, 2])))


# ------------------------------------------------------------------ partners


def partners(rng: random.Random) -> Question:
    """EXISTS, IN and their opposites, perhaps two of them, or one in another."""
    tables = [table(rng, name) for name in "tuw"]
    rel = leaf(rng, tables[0], "a")
    chosen = items(rng, rel.columns)
    terms = [_partner(rng, rel, tables[1], tables[2], "b") for _ in range(rng.choice([1, 1, 2]))]
    if rng.random() < 0.3:
        terms.append(predicate(rng, of_type(rel.columns, "int", "long", "text"), "risingwave"))
    parts = []
    for i in (0, 1):
        shown = ", ".join(f"{e[i]} AS {n}" for n, e in chosen.items())
        parts.append(f"SELECT {shown} FROM {(rel.sql, rel.duck)[i]} WHERE {' AND '.join(f'({t[i]})' for t in terms)}")
    return question(rng, tables, *parts, [*chosen], changes(rng, tables))


def _partner(rng: random.Random, outer: Rel, inner: Table, other: Table, alias: str) -> E:
    rel = leaf(rng, inner, alias)
    a, b = (rng.choice(of_type(r.columns, "int")) for r in (outer, rel))
    more = []
    if rng.random() < 0.4:
        more.append(predicate(rng, of_type(rel.columns, "int", "text"), "risingwave"))
    if rng.random() < 0.4:
        x, y = (rng.choice(of_type(r.columns, "int")) for r in (outer, rel))
        more.append(E(f"{x.sql} {rng.choice(['<', '<>'])} {y.sql}", "", "flag"))
        more[-1] = E(more[-1].sql, more[-1].sql, "flag")
    if alias == "b" and rng.random() < 0.3:
        more.append(_partner(rng, rel, other, other, "c"))
    word, kind = rng.choice(["", "NOT "]), rng.choice(["EXISTS", "IN"])
    conditions = [f"{a[1]} = {b[1]}", *(m[1] for m in more)]
    duck = (
        f"{word}EXISTS (SELECT 1 FROM {rel.duck} WHERE {' AND '.join(conditions)})"  # NOT IN, too: NULL equals nothing
    )
    terms = [f"{a.sql} = {b.sql}"] * (kind == "EXISTS") + [m.sql for m in more]
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    said = f"{a.sql} {word}IN (SELECT {b.sql} FROM {rel.sql}{where})"
    if kind == "EXISTS":
        said = f"{word}EXISTS (SELECT 1 FROM {rel.sql}{where})"
    return E(said, duck, "flag")


# ------------------------------------------------------------------ calls over rows, LIMIT


def ordering(rng: random.Random, columns: Sequence[E], key: Sequence[E]) -> tuple[str, str]:
    """ORDER BY some columns, then the rows' key."""
    parts: list[tuple[str, str]] = []
    for e in (*rng.sample(of_type(columns, "int", "long", "text", "double"), rng.choice([0, 1, 1, 2])), *key):
        down, nulls = rng.random() < 0.5, rng.choice(["", "", " NULLS FIRST", " NULLS LAST"])
        first = nulls or (" NULLS FIRST" if down else " NULLS LAST")  # DuckDB's own is another
        parts.append((f"{e.sql}{' DESC' * down}{nulls}", f"{e.duck}{' DESC' * down}{first}"))
    return ", ".join(x for x, _ in parts), ", ".join(x for _, x in parts)


def frame(rng: random.Random) -> str:
    if rng.random() < 0.3:
        bounds = ["UNBOUNDED PRECEDING", "CURRENT ROW", "UNBOUNDED FOLLOWING"]
    else:
        bounds = [
            "UNBOUNDED PRECEDING",
            "3 PRECEDING",
            "1 PRECEDING",
            "CURRENT ROW",
            "2 FOLLOWING",
            "UNBOUNDED FOLLOWING",
        ]
    i, j = sorted(rng.sample(range(len(bounds)), 2))
    return f" {'ROWS' if len(bounds) > 3 else rng.choice(['ROWS', 'RANGE'])} BETWEEN {bounds[i]} AND {bounds[j]}"


def over_call(rng: random.Random, columns: Sequence[E], key: Sequence[E]) -> E:
    """A call over the rows of a partition, whose order has no peers but for calls that do not see the difference."""
    values = ["lag", "lead", "first_value", "last_value"]
    f = rng.choice(["row_number", "rank", "dense_rank", *values, "count", "sum", "avg", "min", "max"])
    ranks = f in ("rank", "dense_rank")
    order = ordering(rng, columns, [] if ranks else key)
    by = rng.sample(of_type(columns, "int", "text"), rng.choice([0, 1, 1, 2]))
    wider = [] if f in ("sum", "avg") else ["text"]
    n = rng.choice(of_type(columns, "int", "long", *wider))
    args = "" if ranks or f == "row_number" else ", ".join(["{}", *(["2"] if f in ("lag", "lead") else [])])
    framed = "" if ranks or f in ("row_number", "lag", "lead") or rng.random() < 0.4 else frame(rng)
    where = predicate(rng, columns, "risingwave") if f in ("count", "sum", "max") and rng.random() < 0.2 else None
    made = []
    for i in (0, 1):
        parted = f"PARTITION BY {', '.join(e[i] for e in by)} " if by else ""
        ordered = f"ORDER BY {order[i]}" if order[i] else ""
        if ranks and not order[i]:
            ordered = f"ORDER BY {n[i]}" + " NULLS LAST" * i
        behind = "" if where is None else f" FILTER (WHERE {where[i]})"
        made.append(f"{f}({args.format(n[i])}){behind} OVER ({parted}{ordered}{framed})")
    return E(*made, "long")


def over(rng: random.Random, joined: bool = False) -> Question:
    """OVER, over a table or a join, perhaps of those rows alone that a rank lets through."""
    tables = [table(rng, name, True) for name in ("tu" if joined else "t")]
    rel = leaf(rng, tables[0], "a")
    key = [same("a.k", "int")]
    if joined:
        rel, key = join(rng, rel, leaf(rng, tables[1], "b"), rng.choice(KINDS)), [*key, same("b.k", "int")]
    chosen = items(rng, rel.columns)
    for i in range(rng.choice([1, 1, 2, 3])):
        chosen[f"o{i}"] = over_call(rng, rel.columns, key)
    sql, duck = select(rng, rel, chosen)
    if rng.random() < 0.5:
        order = ordering(rng, rel.columns, key)
        by = rng.choice(of_type(rel.columns, "int", "text"))
        top = f"<= {rng.choice([1, 2, 3])}"
        number = [f"SELECT row_number() OVER (PARTITION BY {by[i]} ORDER BY {order[i]}) AS r, " for i in (0, 1)]
        ranked = (x.replace("SELECT ", number[i], 1) for i, x in enumerate((sql, duck)))
        sql, duck = (f"SELECT {', '.join(chosen)} FROM ({x}) q WHERE r {top}" for x in ranked)
    return question(rng, tables, sql, duck, [*chosen], changes(rng, tables))


def over_groups(rng: random.Random) -> Question:
    """OVER above GROUP BY."""
    t = table(rng, "t")
    rel = leaf(rng, t, "a")
    by = rng.choice(of_type(rel.columns, "int", "text"))
    a, b = aggregate(rng, rel.columns), rng.choice(["count(*)", "max(a.n)", "min(a.g)"])
    f = rng.choice(["rank()", "dense_rank()", "sum(count(*))", "max(count(*))"])
    down = rng.choice(["", " DESC"])
    parts = [
        f"SELECT {by[i]} AS g, {a[i]} AS a, {f} OVER (ORDER BY {b}{down} NULLS {'FIRST' if down else 'LAST'}) AS o "
        f"FROM {(rel.sql, rel.duck)[i]} GROUP BY {by[i]}"
        for i in (0, 1)
    ]
    return question(rng, [t], *parts, ["g", "a", "o"], changes(rng, [t]))


def lateral(rng: random.Random) -> Question:
    """LATERAL with LIMIT: of the rows with a value the first ones."""
    tables = [table(rng, name, True) for name in "tu"]
    left, right = leaf(rng, tables[0], "a"), tables[1]
    a, b = rng.choice(of_type(left.columns, "int")), rng.choice(["b.g", "b.n"])
    order = ordering(rng, right.read("b"), [same("b.k", "int")])
    more = rng.choice(["", " AND b.n > 1"])
    tail = rng.choice([" LIMIT 1", " LIMIT 2", " LIMIT 1 OFFSET 1"])
    word, behind = rng.choice([(", ", ""), (" LEFT JOIN ", " ON true"), (" JOIN ", " ON true")])
    chosen = items(rng, left.columns) | {"x": same("l.k", "int"), "y": same("l.s", "text")}
    parts = []
    for i in (0, 1):
        inner = f"SELECT b.k, b.s FROM u AS b WHERE {b} = {a[i]}{more} ORDER BY {order[i]}{tail}"
        shown = ", ".join(f"{e[i]} AS {n}" for n, e in chosen.items())
        parts.append(f"SELECT {shown} FROM {(left.sql, left.duck)[i]}{word}LATERAL ({inner}) AS l{behind}")
    return question(rng, tables, *parts, [*chosen], changes(rng, tables))


def limit(rng: random.Random, on: bool = False) -> Question:
    """LIMIT and OFFSET; DISTINCT ON."""
    t = table(rng, "t", True)
    rel = leaf(rng, t, "a")
    chosen = items(rng, rel.columns)
    sql, duck = select(rng, rel, chosen)
    order = ordering(rng, rel.columns, [same("a.k", "int")])
    if on:
        by = rng.choice(of_type(rel.columns, "int", "text"))
        sql, duck = (x.replace("SELECT", f"SELECT DISTINCT ON ({by[i]})", 1) for i, x in enumerate((sql, duck)))
        order = f"{by.sql}, {order[0]}", f"{by.duck} NULLS LAST, {order[1]}"
    tail = rng.choice([" LIMIT 1", " LIMIT 3", " LIMIT 2 OFFSET 2", " OFFSET 3", *([""] * 3 * on)])
    sql, duck = (f"{x} ORDER BY {order[i]}{tail}" for i, x in enumerate((sql, duck)))
    return question(rng, [t], sql, duck, [*chosen], changes(rng, [t]))


# ------------------------------------------------------------------ nearest rows, tables as they are


def nearest(rng: random.Random, kind: str) -> Question:
    """ASOF: of several rows that are equally near the one with the smallest key."""
    tables = [table(rng, name, True) for name in ("t", "u")]
    word = rng.choice(["<", "<=", ">", ">="])
    right = rng.choice(["n", "g"])
    a = rng.choice(["a.n", "a.g", "a.n * 2"])
    equal = rng.choice(["a.g = b.g", "a.n = b.g", "a.g = b.n"])
    near = f"{a} {word} b.{right}"
    if rng.random() < 0.3:
        near = f"b.{right} {word.translate(str.maketrans('<>', '><'))} {a}"
    order = "ASC" if word.startswith("<") else "DESC"
    columns = [*tables[0].read("a"), *tables[1].read("b")]
    chosen = items(rng, columns)
    shown = ", ".join(f"{e.sql} AS {n}" for n, e in chosen.items())
    asof = "ASOF JOIN" if kind == "INNER" else "ASOF LEFT JOIN"
    sql = f"SELECT {shown} FROM t AS a {asof} u AS b ON {equal} AND {near}"
    best = f"row_number() OVER (PARTITION BY a.k ORDER BY b.{right} {order}, b.k) = 1"
    duck = f"SELECT {shown} FROM t AS a {kind} JOIN u AS b ON {equal} AND {near} QUALIFY {best}"
    return question(rng, tables, sql, duck, [*chosen], changes(rng, tables))


def temporal(rng: random.Random, kind: str) -> Question:
    """A left side that grows, or changes, and a right side that is there before it and stays."""
    left, right = table(rng, "t"), table(rng, "u", True)
    if rng.random() < 0.5:
        left = replace(left, key=None, append_only=True)
    columns = [*left.read("a"), *right.read("b")]
    chosen = items(rng, columns)
    more = predicate(rng, right.read("b"), "risingwave").sql if rng.random() < 0.4 else "true"
    equal = f"a.{rng.choice(['g', 'n', 'k'])} = b.k AND {more}".removesuffix(" AND true")
    word = "JOIN" if kind == "INNER" else "LEFT JOIN"
    shown = ", ".join(f"{e.sql} AS {n}" for n, e in chosen.items())
    sql = f"SELECT {shown} FROM t AS a {word} u FOR SYSTEM_TIME AS OF PROCTIME() AS b ON {equal}"
    calls = [*changes(rng, [right]), *changes(rng, [left])]
    return question(
        rng, [left, right], sql, f"SELECT {shown} FROM t AS a {word} u AS b ON {equal}", [*chosen], calls, late=False
    )


# ------------------------------------------------------------------ windows


def log(rng: random.Random, name: str) -> Table:
    return Table(name, {"k": "int", "n": "int", "s": "text", "ts": "time"}, None, True, rng.choice([None, 5, 20, 60]))


def logged(rng: random.Random, tables: Sequence[Table]) -> list[Call]:
    """Rows of which none is below the watermark of its table."""
    calls: list[Call] = []
    seen = dict.fromkeys([t.name for t in tables], 0)
    now = 600
    for n in range(rng.choice([3, 8, 16, 25])):
        t = rng.choice(tables)
        made, top = [], seen[t.name]
        for i in range(rng.choice([1, 1, 2, 4])):
            now += rng.choice([0, 1, 5, 20]) + (600 if rng.random() < 0.02 else 0)
            at = max(now - rng.choice([0, 0, 10, 50]), seen[t.name] - (t.spare or 0))
            top = max(top, at)
            row = values(rng, {"k": "key", "n": "int", "s": "text"}, KEYS, n * 10 + i)
            text = f"2024-01-01 {10 + at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}"
            made.append(literal((*row.values(), text)))
        seen[t.name] = top
        sql = f"INSERT INTO {t.name} VALUES {', '.join(made)}"
        calls.append(Statement(f"{sql};", sql))
    return calls


def in_windows(rng: random.Random, t: Table, size: int) -> tuple[str, str]:
    """A table in windows of so many minutes, and of twice so many; in DuckDB's SQL."""
    start = f"time_bucket(INTERVAL '{size} minutes', ts)"
    if rng.random() < 0.7:
        said = f"TUMBLE({t.name}, ts, INTERVAL '{size}' MINUTE)"
        return said, f"(SELECT *, {start} AS window_start FROM {t.name}) AS {t.name}"
    said = f"HOP({t.name}, ts, INTERVAL '{size}' MINUTE, INTERVAL '{size * 2}' MINUTE)"
    both = f"{start} - i * INTERVAL '{size} minutes' AS window_start FROM {t.name}, (VALUES (0), (1)) w(i)"
    return said, f"(SELECT *, {both}) AS {t.name}"


def closed_groups(rng: random.Random) -> Question:
    """GROUP BY a window, and perhaps a key, of which each goes out once; read at the end."""
    t = replace(log(rng, "a"), spare=20)
    said, asked = in_windows(rng, t, rng.choice([1, 5]))
    by = rng.choice(["window_start", "window_start, k", "n, window_start"])
    having = rng.choice(["", " HAVING COUNT(*) > 1"])
    text = f"SELECT {by}, COUNT(*) AS c, SUM(n) AS t, MAX(s) AS m FROM {{}} GROUP BY {by}{having}"
    columns = [*by.split(", "), "c", "t", "m"]
    sql = text.format(said) + " EMIT ON WINDOW CLOSE"
    made = question(rng, [t], sql, text.format(asked), columns, logged(rng, [t]), late=False)
    return replace(made, calls=(*made.calls, Finish()))


def windowed(rng: random.Random, closed: bool = False) -> Question:
    """TUMBLE and HOP of two logs that meet in a window; `closed`: EMIT ON WINDOW CLOSE, read at the end."""
    tables = [replace(log(rng, name), spare=20) if closed else log(rng, name) for name in ("a", "b")]
    size = rng.choice([1, 5])
    said, asked = zip(*(in_windows(rng, t, size) for t in tables), strict=True)
    kind = "INNER" if closed else rng.choice(KINDS)
    columns = [E(f"{t.name}.{c}", f"{t.name}.{c}", type) for t in tables for c, type in t.columns.items() if c != "ts"]
    chosen = items(rng, columns)
    start = "a.window_start AS w"
    shown = ", ".join(f"{e.sql} AS {n}" for n, e in chosen.items())
    equal = rng.choice(["a.k = b.k AND ", "a.k = b.n AND "]) + "a.window_start = b.window_start"
    sql = f"SELECT {shown}, {start} FROM {said[0]} {kind} JOIN {said[1]} ON {equal}"
    duck = f"SELECT {shown}, {start} FROM {asked[0]} {kind} JOIN {asked[1]} ON {equal}"
    calls = logged(rng, tables)
    made = question(
        rng, tables, f"{sql}{' EMIT ON WINDOW CLOSE' if closed else ''}", duck, [*chosen, "w"], calls, late=not closed
    )
    return replace(made, calls=(*made.calls, Finish())) if closed else made


def interval(rng: random.Random) -> Question:
    """Two logs whose times lie close together."""
    tables = [log(rng, name) for name in ("a", "b")]
    before, after = rng.choice([(0, 60), (10, 10), (60, 0)])
    columns = [E(f"{t.name}.{c}", f"{t.name}.{c}", type) for t in tables for c, type in t.columns.items() if c != "ts"]
    chosen = items(rng, columns)
    kind = rng.choice(["INNER", "INNER", *KINDS])
    near = f"a.ts BETWEEN b.ts - INTERVAL '{before}' SECOND AND b.ts + INTERVAL '{after}' SECOND"
    equal = rng.choice(["a.k = b.k", "a.k = b.n"])
    text = (
        f"SELECT {', '.join(f'{e.sql} AS {n}' for n, e in chosen.items())} FROM a {kind} JOIN b ON {equal} AND {near}"
    )
    calls = logged(rng, tables)
    if rng.random() < 0.4:  # a row that has met one is not taken for unmatched when that one is forgotten
        by = rng.choice(list(chosen))
        text, chosen = f"SELECT {by}, count(*) AS c FROM ({text}) AS j GROUP BY {by}", {by: chosen[by], "c": columns[0]}
    return question(rng, tables, text, text, [*chosen], calls)


SHAPES: dict[str, Shape] = {
    "risingwave filter": filter_table,
    **{f"risingwave join {kind}": partial(one_join, kind=kind) for kind in KINDS},
    "risingwave merged columns": merged,
    "risingwave chain": chain,
    "risingwave views": views,
    "risingwave group": group,
    "risingwave aggregates": partial(group, whole=True),
    "risingwave one group below": one_group,
    "risingwave joined group": partial(group, joined=True),
    "risingwave more aggregates": partial(group, more=True),
    "risingwave ordered aggregates": partial(group, ordered=True),
    "risingwave ordered aggregates over joins": partial(group, ordered=True, joined=True, more=True),
    "risingwave ordered aggregates without key": partial(group, ordered=True, whole=True),
    "risingwave more without groups": partial(group, more=True, whole=True),
    "risingwave sets": partial(group, more=True, sets=True),
    "risingwave different values": different,
    "risingwave different values in sets": partial(different, sets=True),
    "risingwave partners": partners,
    "risingwave over": over,
    "risingwave over joins": partial(over, joined=True),
    "risingwave over groups": over_groups,
    "risingwave limit": limit,
    "risingwave lateral": lateral,
    "risingwave distinct on": partial(limit, on=True),
    **{f"risingwave asof {kind}": partial(nearest, kind=kind) for kind in KINDS[:2]},
    **{f"risingwave temporal {kind}": partial(temporal, kind=kind) for kind in KINDS[:2]},
    "risingwave window": windowed,
    "risingwave window closed": partial(windowed, closed=True),
    "risingwave groups closed": closed_groups,
    "risingwave interval": interval,
}
