"""Questions in SQLstream's SQL that a batch query can answer (`batch_law.py`).

In: a `random.Random`. Out: a `Question` whose history keeps the condition under which the two are equal.
Rule: in DuckDB a row has a life, `_e` to `_l`, and `_x`, when it goes out alone under `expiry`; two rows meet where
their lives do, and a result's time is its `_e`. Late rows are left out there as here.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from batch_expressions import E, of_type, predicate, same, value
from batch_law import Call, Clock, Finish, Question, Shape, Topic, Write, literal, values

KINDS = ("INNER", "LEFT", "RIGHT", "FULL")
TYPE = {"int": "INT", "long": "BIGINT", "text": "VARCHAR(10)", "double": "DOUBLE", "flag": "BOOLEAN"}
KEYS = [None, 1, 1, 2, 3]
FOREVER = 2**60


@dataclass(frozen=True, slots=True)
class Frame:
    """OVER (…), and the life of a row in DuckDB: of its time `_t`, over all rows of its stream."""

    over: str
    enter: str
    leave: str
    alone: str  # when it goes out alone under `expiry`


def seconds(n: int) -> str:
    return f"INTERVAL '{n}' SECOND"


def plain_frame(rng: random.Random) -> Frame:
    """RANGE over ROWTIME, or none."""
    a = rng.choice([0, 1, 5, 10, 30, 60])
    match rng.randrange(6):
        case 0:
            return Frame(rng.choice(["", " OVER (RANGE CURRENT ROW)"]), "_t", "_t", "_t")
        case 1:
            b = rng.choice([0, 3, 10])
            upper = f"{seconds(b)} PRECEDING" if b else "CURRENT ROW"
            over = f" OVER (RANGE BETWEEN {seconds(a + b)} PRECEDING AND {upper})"
            return Frame(over, f"_t + {b * 1000}", f"_t + {(a + b) * 1000}", f"_t + {(a + b) * 1000}")
    return Frame(f" OVER (RANGE {seconds(a)} PRECEDING)", "_t", f"_t + {a * 1000}", f"_t + {a * 1000}")


def hop_frame(rng: random.Random) -> Frame:
    """RANGE over FLOOR, CEIL or STEP of ROWTIME."""
    word, u = rng.choice([("FLOOR(ROWTIME TO MINUTE)", 60), ("CEIL(ROWTIME TO MINUTE)", 60), ("STEP", 15)])
    order = f"STEP(ROWTIME BY {seconds(u)})" if word == "STEP" else word
    u *= 1000
    below = f"(_t // {u}) * {u}"
    above = f"((_t + {u - 1}) // {u}) * {u}"
    width = rng.choice([0, 0, 1, 2]) * u
    spec = f"RANGE INTERVAL '{width // 1000}' SECOND PRECEDING" if width else "RANGE CURRENT ROW"
    leave = f"{above} + {width}" if word.startswith("CEIL") else f"{below} + {width + u - 1}"
    return Frame(f" OVER (ORDER BY {order} {spec})", "_t", leave, f"{leave} + 1")


def rows_frame(rng: random.Random) -> Frame:
    """The last rows of the stream, by time and then by position, which is the order of the calls here."""
    m = rng.choice([0, 0, 0, 1])
    n = m + rng.choice([0, 1, 3])
    over = (
        rng.choice([f"{n} PRECEDING", *(["CURRENT ROW"] * (n == 0))])
        if m == 0
        else f"BETWEEN {n} PRECEDING AND {m} PRECEDING"
    )
    order = "OVER (ORDER BY _t, _n)"
    evicting = f"lead(_t, {n + 1}) {order}"
    leave = f"COALESCE({evicting} - 1, {FOREVER})"
    alone = f"COALESCE({evicting}, (SELECT max(_t) FROM every))"
    return Frame(f" OVER (ROWS {over})", f"lead(_t, {m}) {order}", leave, alone)


@dataclass(frozen=True, slots=True)
class Rel:
    """`said` stands in FROM; in DuckDB a sub-query with the columns and `_e`, `_l`, `_x`."""

    said: str
    columns: tuple[E, ...]
    duck: str


def topic(rng: random.Random, name: str) -> Topic:
    columns = {"k": "key", "j": "key", "n": "int", "s": "text"}
    for column, type in (("m", "long"), ("b", "flag")):
        if rng.random() < 0.3:
            columns[column] = type
    return Topic(name, columns, (), rng.choice([1, 1, 2]))


def typed(t: Topic) -> Topic:
    return replace(t, columns={c: "int" if type == "key" else type for c, type in t.columns.items()})


def declared(t: Topic) -> str:
    columns = ", ".join(f"{c} {TYPE[type]}" for c, type in typed(t).columns.items())
    return f"CREATE STREAM {t.name} ({columns}) OPTIONS (PARTITIONS '{t.partitions}');\n"


def accepted(name: str) -> str:
    """Without the rows that are late in their own partition."""
    return f"(SELECT * FROM {name} QUALIFY _t >= max(_t) OVER (PARTITION BY _p ORDER BY _n))"


def leaf(t: Topic, frame: Frame, alias: str) -> Rel:
    columns = tuple(E(f"{alias}.{c}", f"{alias}__{c}", type) for c, type in typed(t).columns.items())
    columns = (*columns, E(f"{alias}.ROWTIME", f"{alias}__rowtime", "time"))
    shown = ", ".join(f"{c} AS {alias}__{c}" for c in t.columns)
    duck = (
        f"(SELECT {shown}, _t AS {alias}__rowtime, {frame.enter} AS _e, {frame.leave} AS _l, {frame.alone} AS _x"
        f" FROM {accepted(t.name)})"
    )
    return Rel(f"{t.name}{frame.over} AS {alias}", columns, duck)


# ------------------------------------------------------------------ joins


def condition(rng: random.Random, left: Rel, right: Rel) -> tuple[str, str]:
    """(ON or USING, the condition in DuckDB)"""
    a = rng.choice([c for c in left.columns if c.sql.endswith((".k", ".j"))])
    b = rng.choice([c for c in right.columns if c.sql.endswith((".k", ".j"))])
    equal = E(f"{a.sql} = {b.sql}", f"{a.duck} = {b.duck}", "flag")
    every = [c for c in (*left.columns, *right.columns) if c.type != "time"]
    match rng.randrange(8):
        case 0:  # any condition
            x, y = rng.choice(of_type(left.columns, "int")), rng.choice(of_type(right.columns, "int"))
            return f" ON {x.sql} <= {y.sql}", f"{x.duck} <= {y.duck}"
        case 1 | 2:
            p = predicate(rng, every, "sqlstream")
            return f" ON {equal.sql} AND {p.sql}", f"{equal.duck} AND {p.duck}"
        case 3:  # of the names that both sides have, each once
            if left.said.count(" AS ") == right.said.count(" AS ") == 1:
                la, ra = left.columns[0].sql.split(".")[0], right.columns[0].sql.split(".")[0]
                names = rng.choice([["k"], ["k", "j"]])
                names = [
                    c for c in names if all(any(e.sql.endswith(f".{c}") for e in x.columns) for x in (left, right))
                ]
                return f" USING ({', '.join(names)})", " AND ".join(f"{la}__{c} = {ra}__{c}" for c in names)
    return f" ON {equal.sql}", equal.duck


def join(rng: random.Random, left: Rel, right: Rel, kind: str, emission: str) -> Rel:
    said, on = condition(rng, left, right)
    word = "JOIN" if kind == "INNER" and rng.random() < 0.5 else f"{kind} JOIN"
    text = f"{left.said} {word} {right.said}{said}"
    if kind == "INNER" and rng.random() < 0.15:
        text, on = f"{left.said} CROSS JOIN {right.said}", "true"
    return Rel(text, (*left.columns, *right.columns), lives(left, right, kind, on, emission))


def lives(left: Rel, right: Rel, kind: str, on: str, emission: str) -> str:
    """Pairs live while both sides do; then what goes out alone, at which instants, and how long it stays alone."""
    columns = (*left.columns, *right.columns)
    shown = ", ".join(c.duck for c in columns)
    parts = [f"SELECT {shown}, _e, _l, _l AS _x FROM pairs"]
    for kinds, rows, id, one in (("LEFT FULL", "ls", "li", left), ("RIGHT FULL", "rs", "ri", right)):
        if kind not in kinds.split():
            continue
        of = f"FROM pairs p WHERE p.{id} = s._id"
        match emission:
            case "expiry":  # never met: when the life ends, if there was one
                began = f"SELECT *, CASE WHEN _e > _l THEN _e ELSE _x END AS _at FROM {rows} WHERE _e IS NOT NULL"
                alone, until = f"NOT EXISTS (SELECT 1 {of})", "_at"
            case _:  # nobody is met at its beginning; `istream`: or right behind a time with somebody
                began = f"SELECT *, _e AS _at FROM {rows} WHERE _e IS NOT NULL"
                if emission == "istream":
                    after = f"FROM {rows} s JOIN pairs p ON p.{id} = s._id WHERE p._l < s._l"
                    began += f" UNION SELECT s.*, p._l + 1 {after}"
                alone = f"NOT EXISTS (SELECT 1 {of} AND s._at BETWEEN p._e AND p._l)"
                until = f"COALESCE((SELECT min(p._e) - 1 {of} AND p._e > s._at), greatest(_l, _at))"
        nulls = ", ".join(c.duck if c in one.columns else f"NULL AS {c.duck}" for c in columns)
        parts.append(f"SELECT {nulls}, _at AS _e, {until} AS _l, _at AS _x FROM ({began}) s WHERE {alone}")
    numbered = "(SELECT *, row_number() OVER () AS _id FROM {})"
    pairs = (
        "SELECT L.* EXCLUDE (_e, _l, _x, _id), R.* EXCLUDE (_e, _l, _x, _id), greatest(L._e, R._e) AS _e,"
        f" least(L._l, R._l) AS _l, L._id AS li, R._id AS ri FROM ls L JOIN rs R ON {on}"
        " AND L._e + R._e IS NOT NULL AND greatest(L._e, R._e) <= least(L._l, R._l)"
    )
    return (
        f"(WITH ls AS MATERIALIZED {numbered.format(left.duck)}, rs AS MATERIALIZED {numbered.format(right.duck)},"
        f" pairs AS MATERIALIZED ({pairs}) {' UNION ALL '.join(parts)})"
    )


def with_table(rng: random.Random, left: Rel, kind: str, alias: str = "t") -> Rel:
    """A stream that looks into table `t`."""
    columns = (
        E(f"{alias}.k", f"{alias}__k", "int"),
        E(f"{alias}.v", f"{alias}__v", "text"),
        E(f"{alias}.w", f"{alias}__w", "int"),
    )
    a = rng.choice([c for c in left.columns if c.sql.endswith((".k", ".j"))])
    on = E(f"{a.sql} = {alias}.k", f"{a.duck} = {alias}__k", "flag")
    if rng.random() < 0.4:
        p = predicate(rng, columns, "sqlstream")
        on = E(f"{on.sql} AND {p.sql}", f"{on.duck} AND {p.duck}", "flag")
    table = f"(SELECT k AS {alias}__k, v AS {alias}__v, w AS {alias}__w FROM t)"
    swapped = rng.random() < 0.3 and " JOIN " not in left.said
    word = {"INNER": "JOIN", "LEFT": "RIGHT JOIN" if swapped else "LEFT JOIN"}[kind]
    said = f"t AS {alias} {word} {left.said}" if swapped else f"{left.said} {word} t AS {alias}"
    duck = f"(SELECT * FROM {left.duck} L {kind} JOIN {table} R ON {on.duck})"
    return Rel(f"{said} ON {on.sql}", (*left.columns, *columns), duck)


# ------------------------------------------------------------------ questions


def items(rng: random.Random, rel: Rel) -> dict[str, E]:
    chosen = {f"v{i}": c for i, c in enumerate(rel.columns) if rng.random() < 0.5 and c.type != "time"}
    for i in range(rng.choice([0, 1])):
        chosen[f"e{i}"] = value(rng, [c for c in rel.columns if c.type != "time"], "sqlstream")
    return chosen or {"v0": rel.columns[0]}


def select(rng: random.Random, rel: Rel, chosen: dict[str, E]) -> tuple[str, str]:
    sql = f"SELECT STREAM {', '.join(f'{e.sql} AS {n}' for n, e in chosen.items())} FROM {rel.said}"
    duck = f"SELECT {', '.join(f'{e.duck} AS {n}' for n, e in chosen.items())}, _e AS _t FROM {rel.duck}"
    if rng.random() < 0.25:
        p = predicate(rng, [c for c in rel.columns if c.type != "time"], "sqlstream")
        sql, duck = f"{sql} WHERE {p.sql}", f"{duck} WHERE {p.duck}"
    return sql, duck


def question(
    topics: Sequence[Topic], before: str, sql: str, duck: str, chosen: Sequence[str], calls: Sequence[Call],
    emission: str = "arrival", prepare: str = ""
) -> Question:  # fmt: skip
    setting = f"SET 'braid.outer.emission' = '{emission}';\n" if emission != "arrival" else ""
    script = f"{''.join(map(declared, topics))}{before}{setting}CREATE VIEW o AS {sql};"
    shown = [f"SELECT _t FROM {accepted(t.name)}" for t in topics]
    shown += [f"SELECT {c.time}" for c in calls if isinstance(c, Clock)]
    rows = " UNION ALL ".join(shown)
    made = f"{prepare}; CREATE TABLE every AS {rows}"
    names = tuple(c.upper() for c in chosen)
    return Question("sqlstream", tuple(map(typed, topics)), script, duck, names, (), tuple(calls), prepare=made)


def one_join(rng: random.Random, kind: str, emission: str | None = None, frame: str = "range") -> Question:
    """Two streams, or one with itself."""
    emission = emission or "arrival"
    topics = [topic(rng, name) for name in "ab"]
    if rng.random() < 0.1:
        topics = topics[:1]
    frames = {"range": plain_frame, "hop": hop_frame, "rows": rows_frame}
    pick = [frames[frame], rng.choice([frames[frame], plain_frame])]
    rng.shuffle(pick)
    left, right = leaf(topics[0], pick[0](rng), "a"), leaf(topics[-1], pick[1](rng), "b")
    rel = join(rng, left, right, kind, emission)
    chosen = items(rng, rel)
    sql, duck = select(rng, rel, chosen)
    return question(topics, "", sql, duck, [*chosen], history(rng, topics), emission)


def chain(rng: random.Random, last: str | None = None, emission: str = "arrival", outer: bool = False) -> Question:
    """Joins over RANGE windows, left-deep or in parentheses: INNER, but `last`; `outer`: of any kind, left-deep."""
    count = rng.choice([3, 3, 4])
    topics = [topic(rng, name) for name in "abc"]
    leaves = [leaf(rng.choice(topics) if i > 2 else topics[i], plain_frame(rng), f"x{i}") for i in range(count)]
    rels = leaves
    while len(rels) > 1:
        at = rng.randrange(len(rels) - 1) if not outer else 0
        kind = rng.choice(KINDS) if outer else "INNER"
        if len(rels) == 2 and last:
            kind = last
        right = rels[at + 1]
        if " JOIN " in right.said:
            right = replace(right, said=f"({right.said})")
        rels = [*rels[:at], join(rng, rels[at], right, kind, emission), *rels[at + 2 :]]
    chosen = items(rng, rels[0])
    sql, duck = select(rng, rels[0], chosen)
    return question(topics, "", sql, duck, [*chosen], history(rng, topics), emission)


def view(rng: random.Random) -> Question:
    """A join of a stream and a view over a join, or over a filter."""
    topics = [topic(rng, name) for name in "abc"]
    joined = rng.random() < 0.7
    inner = leaf(topics[0], plain_frame(rng) if joined else Frame("", "_t", "_t", "_t"), "x")
    emission = rng.choice(["arrival", "expiry"])
    if joined:
        inner = join(rng, inner, leaf(topics[1], plain_frame(rng), "y"), rng.choice(KINDS), emission)
    chosen = items(rng, inner) | {"k": inner.columns[0], "n": inner.columns[2]}
    sql, duck = select(rng, inner, chosen)
    columns = tuple(E(f"v.{n}", f"v__{n}", e.type) for n, e in chosen.items())
    frame = plain_frame(rng)
    shown = ", ".join(f"{n} AS v__{n}" for n in chosen)
    asked = f"(SELECT {shown}, {frame.enter} AS _e, {frame.leave} AS _l, {frame.alone} AS _x FROM ({duck}))"
    made = f"SET 'braid.outer.emission' = '{emission}';\n"
    if rng.random() < 0.5:
        made, source = f"{made}CREATE VIEW w AS {sql};\n", "w"
    else:
        source = f"({sql})"
    rel = Rel(f"{source}{frame.over} AS v", columns, asked)
    other = leaf(topics[2], plain_frame(rng), "c")
    sides = [rel, other] if rng.random() < 0.5 else [other, rel]
    both = join(rng, *sides, rng.choice(KINDS), emission)
    chosen = items(rng, both)
    sql, duck = select(rng, both, chosen)
    return question(topics, made, sql, duck, [*chosen], history(rng, topics), emission)


def filter_stream(rng: random.Random) -> Question:
    topics = [topic(rng, "a")]
    rel = replace(leaf(topics[0], Frame("", "_t", "_t", "_t"), "a"), said="a")
    chosen = items(rng, rel)
    sql, duck = select(rng, rel, chosen)
    return question(topics, "", sql, duck, [*chosen], history(rng, topics))


# ------------------------------------------------------------------ tables


def table(rng: random.Random) -> tuple[str, str]:
    """Table `t` with its rows: as SQL of the dialect, of DuckDB."""
    rows = [
        (rng.choice([1, 1, 2, 3, 4]), rng.choice([None, "x", "y"]), rng.choice([None, 0, 2]))
        for _ in range(rng.choice([1, 3, 6]))
    ]
    said = ", ".join(map(literal, rows))
    sql = f"CREATE TABLE t (k INT, v VARCHAR(10), w INT);\nINSERT INTO t VALUES {said};\n"
    return sql, f"CREATE TABLE t (k INTEGER, v VARCHAR, w INTEGER); INSERT INTO t VALUES {said}"


def look_up(rng: random.Random, kind: str | None = None, chained: bool = False) -> Question:
    topics = [topic(rng, name) for name in ("ab" if chained else "a")]
    made, prepare = table(rng)
    rel = leaf(topics[0], plain_frame(rng) if chained else Frame("", "_t", "_t", "_t"), "a")
    if chained:
        first = rng.random() < 0.5
        if first:
            rel = with_table(rng, rel, rng.choice(["INNER", "LEFT"]))
        rel = join(rng, rel, leaf(topics[1], plain_frame(rng), "b"), "INNER", "arrival")
        if not first:
            rel = with_table(rng, rel, rng.choice(["INNER", "LEFT"]))
    else:
        rel = with_table(rng, rel, kind or "LEFT")
    chosen = items(rng, rel)
    sql, duck = select(rng, rel, chosen)
    return question(topics, made, sql, duck, [*chosen], history(rng, topics), prepare=prepare)


def tables(rng: random.Random) -> tuple[str, str]:
    """Tables `t` and `u` with their rows, some of them equal."""
    rows = [
        (rng.choice([None, 1, 1, 2, 3, 4]), rng.choice([None, "x", "y"]), rng.choice([0, 2, 5]))
        for _ in range(rng.choice([0, 1, 4, 8]))
    ]
    made, prepare = table(rng)
    sql, duck = (f"CREATE TABLE u (k {t[0]}, x {t[1]}, w INT NOT NULL);\n" for t in (("INT", "VARCHAR(9)"),) * 2)
    said = f"INSERT INTO u VALUES {', '.join(map(literal, rows))};\n" if rows else ""
    return f"{made}{sql}{said}", f"{prepare}; {duck}{said}".rstrip().rstrip(";")


def partnered(rng: random.Random, outer: Sequence[E]) -> E:
    """IN, EXISTS and their opposites of table `t` or `u`."""
    a = rng.choice(of_type(outer, "int"))
    b = rng.choice(["t.k", "t.w", "u.k", "u.w"])
    name = b[0]
    inner = [same(f"{name}.k", "int"), same(f"{name}.w", "int")]
    where = f" WHERE {predicate(rng, inner, 'sqlstream').sql}" if rng.random() < 0.4 else ""
    no = rng.choice(["", "NOT "])
    if rng.random() < 0.5:
        return E(*(f"{x} {no}IN (SELECT {b} FROM {name}{where})" for x in (a.sql, a.duck)), "flag")
    terms = [(f"{b} = {a.sql}", f"{b} = {a.duck}")] if rng.random() < 0.8 else []
    if rng.random() < 0.5 or not terms:
        c = rng.choice(of_type(outer, "int"))
        terms.append((f"{name}.w > {c.sql}", f"{name}.w > {c.duck}"))
    both = (" AND ".join(x[i] for x in terms) for i in (0, 1))
    more = where.replace(" WHERE ", " AND ")
    return E(*(f"{no}EXISTS (SELECT 1 FROM {name} WHERE {x}{more})" for x in both), "flag")


def partners(rng: random.Random, joined: bool = False) -> Question:
    """Rows of a stream, or of a join, that have partners in tables, or none."""
    topics = [topic(rng, name) for name in ("ab" if joined else "a")]
    made, prepare = tables(rng)
    rel = leaf(topics[0], plain_frame(rng) if joined else Frame("", "_t", "_t", "_t"), "a")
    if joined:
        rel = join(rng, rel, leaf(topics[1], plain_frame(rng), "b"), rng.choice(KINDS), "arrival")
    chosen = items(rng, rel)
    terms = [partnered(rng, rel.columns) for _ in range(rng.choice([1, 1, 2]))]
    if rng.random() < 0.3:
        terms.append(predicate(rng, [c for c in rel.columns if c.type != "time"], "sqlstream"))
    sql = f"SELECT STREAM {', '.join(f'{e.sql} AS {n}' for n, e in chosen.items())} FROM {rel.said}"
    duck = f"SELECT {', '.join(f'{e.duck} AS {n}' for n, e in chosen.items())}, _e AS _t FROM {rel.duck}"
    sql = f"{sql} WHERE {' AND '.join(t.sql for t in terms)}"
    duck = f"{duck} WHERE {' AND '.join(f'({t.duck})' for t in terms)}"
    return question(topics, made, sql, duck, [*chosen], history(rng, topics), prepare=prepare)


def joined_tables(rng: random.Random) -> Question:
    """A stream that looks into tables which are joined: in brackets, or as a view that computes something."""
    topics = [topic(rng, "a")]
    made, prepare = tables(rng)
    rel = leaf(topics[0], Frame("", "_t", "_t", "_t"), "a")
    kind, outer = rng.choice(KINDS), rng.choice(["INNER", "LEFT"])
    on = rng.choice(["t.k = u.k", "t.k = u.k AND t.w < u.w", "t.w = u.w"])
    key = rng.choice(["t__k", "u__k"])
    shown = "t.k AS t__k, t.v AS t__v, u.k AS u__k, COALESCE(u.x, t.v, 'none') AS c"
    view = f"SELECT {shown} FROM t {kind} JOIN u ON {on}"
    a = rng.choice([c for c in rel.columns if c.sql.endswith((".k", ".j"))])
    types = {"t__k": "int", "t__v": "text", "u__k": "int", "c": "text"}
    columns = [E(f"z.{n}", f"z__{n}", t) for n, t in types.items()]
    renamed = ", ".join(f"{c.sql[2:]} AS {c.duck}" for c in columns)
    duck = f"(SELECT * FROM {rel.duck} L {outer} JOIN (SELECT {renamed} FROM ({view})) R ON {a.duck} = z__{key})"
    source = rng.choice(["z", f"({view})"])
    before = f"{made}CREATE VIEW z AS {view};\n" if source == "z" else made
    whole = Rel(f"{rel.said} {outer} JOIN {source} AS z ON {a.sql} = z.{key}", (*rel.columns, *columns), duck)
    chosen = items(rng, whole)
    sql, duck = select(rng, whole, chosen)
    return question(topics, before, sql, duck, [*chosen], history(rng, topics), prepare=prepare)


def of_tables(rng: random.Random) -> Question:
    """A query over tables alone."""
    made, prepare = tables(rng)
    kind = rng.choice(KINDS)
    on = rng.choice(["t.k = u.k", "t.k = u.k AND t.w < u.w", "t.w = u.w AND u.x = 'x'", "t.k > u.k"])
    source = rng.choice(["t", f"t {kind} JOIN u ON {on}", f"t {kind} JOIN u ON {on}"])
    columns = [same("t.k", "int"), same("t.v", "text"), same("t.w", "int")]
    columns += [same("u.k", "int"), same("u.x", "text")] if "JOIN" in source else []
    terms = [predicate(rng, columns, "sqlstream")] if rng.random() < 0.3 else []
    terms += [partnered(rng, columns)] if rng.random() < 0.5 else []
    where = f" WHERE {' AND '.join(t.duck for t in terms)}" if terms else ""
    g, x = (rng.choice(columns).sql for _ in range(2))
    n = rng.choice(of_type(columns, "int")).sql
    having = rng.choice(["", " HAVING COUNT(*) > 1", " HAVING COUNT(*) < 2"])
    counted = f"COUNT(*) AS n, SUM({n}) AS s, COUNT(DISTINCT {x}) AS d, MAX({x}) AS m"
    match rng.choice(["rows", "groups", "one", "different", "union", "below"]):
        case "rows":
            chosen, sql = ["a", "b"], f"SELECT {g} AS a, {x} AS b FROM {source}{where}"
        case "groups":
            chosen = ["a", "n", "s", "d", "m"]
            sql = f"SELECT {g} AS a, {counted} FROM {source}{where} GROUP BY {g}{having}"
        case "one":
            chosen, sql = ["n", "s", "d", "m"], f"SELECT {counted} FROM {source}{where}{having}"
        case "different":
            chosen, sql = ["a", "b"], f"SELECT DISTINCT {g} AS a, {x} AS b FROM {source}{where}"
        case "union":
            chosen, sql = ["a"], f"SELECT {n} AS a FROM {source}{where} UNION ALL SELECT w AS a FROM u"
        case _:
            one = f"(SELECT COUNT(*) AS n, MAX({n}) AS m FROM {source}{where})"
            chosen, sql = ["n", "m", "w"], f"SELECT q.n, q.m, p.w FROM {one} AS q {kind} JOIN u AS p ON p.w = q.n"
    names = tuple(c.upper() for c in chosen)
    return Question("sqlstream", (), made, sql, names, (), (), "", asks=sql, timed=False, prepare=prepare)


def report(rng: random.Random) -> Question:
    """A table whose rows are kept, once a bucket: those that none met, at its end."""
    t = topic(rng, "a")
    made, prepare = table(rng)
    word, u = rng.choice(
        [
            ("FLOOR(ROWTIME TO MINUTE)", 60_000),
            ("CEIL(ROWTIME TO MINUTE)", 60_000),
            ("STEP(ROWTIME BY INTERVAL '15' SECOND)", 15_000),
        ]
    )
    every = rng.random() < 0.5
    ceil = word.startswith("CEIL")
    bucket = f"(_t + {u - 1}) // {u}" if ceil else f"_t // {u}"  # the number of a row's bucket
    end = f"x._b * {u} + 1" if ceil else f"(x._b + 1) * {u}"
    rows = f"(SELECT *, {bucket} AS _b FROM {accepted('a')})"
    buckets = (
        f"(SELECT unnest(generate_series(min(_b), max(_b))) AS _b FROM {rows})"
        if every
        else f"(SELECT DISTINCT _b FROM {rows})"
    )
    duck = (
        f"SELECT a.n AS n, a.s AS s, t.k AS tk, t.v AS v, a._t AS _t FROM {rows} a JOIN t ON a.k = t.k UNION ALL"
        f" SELECT NULL, NULL, t.k, t.v, {end} FROM {buckets} x, t"
        f" WHERE NOT EXISTS (SELECT 1 FROM {rows} a WHERE a._b = x._b AND a.k = t.k)"
    )
    over = f"OVER (ORDER BY {word} RANGE CURRENT ROW)"
    sql = f"SELECT STREAM a.n AS n, a.s AS s, t.k AS tk, t.v AS v FROM a {over} AS a RIGHT JOIN t AS t ON a.k = t.k"
    made += "" if every else "SET 'braid.empty.buckets' = 'off';\n"
    return question([t], made, sql, duck, ["n", "s", "tk", "v"], history(rng, [t], marked=False), prepare=prepare)


# ------------------------------------------------------------------ groups


def period(rng: random.Random, time: str = "ROWTIME") -> tuple[str, str]:
    """A period of ROWTIME, and the time of what is grouped or sorted by it, of a row of `_e`."""
    ms = rng.choice([1000, 15_000, 60_000])
    word = {1000: "SECOND", 60_000: "MINUTE"}.get(ms)
    below = f"CAST(floor(_e / {ms}.0) AS BIGINT) * {ms} + {ms}"
    match rng.randrange(5):
        case 0:
            return time, "_e"
        case 1 if word:
            return f"CEIL({time} TO {word})", f"CAST(ceil(_e / {ms}.0) AS BIGINT) * {ms} + 1"
        case 2 if word:
            return f"FLOOR({time} TO {word})", below
        case 3:
            moved = f"STEP({time} + INTERVAL '2' SECOND BY INTERVAL '{ms // 1000}' SECOND)"
            return moved, f"CAST(floor((_e + 2000) / {ms}.0) AS BIGINT) * {ms} + {ms} - 2000"
    return f"STEP({time} BY INTERVAL '{ms // 1000}' SECOND)", below


def aggregate(rng: random.Random, columns: Sequence[E]) -> E:
    c = rng.choice([c for c in columns if c.type in ("int", "text")])
    if c.type == "text" or rng.random() < 0.4:
        name = rng.choice(["MIN", "MAX"])
        return E(f"{name}({c.sql})", f"{name}({c.duck})", c.type)
    match rng.randrange(5):
        case 0:
            return E(f"COUNT({c.sql})", f"COUNT({c.duck})", "long")
        case 1:
            return E(f"COUNT(DISTINCT {c.sql})", f"COUNT(DISTINCT {c.duck})", "long")
        case 2:
            return E(f"AVG({c.sql})", f"AVG({c.duck})", "double")
        case 3:
            return E(f"SUM({c.sql}) - COUNT(*)", f"(SUM({c.duck}) - COUNT(*))::BIGINT", "long")
    return E("COUNT(*)", "COUNT(*)", "long")


def rows_of(rng: random.Random, topics: Sequence[Topic], over: str, alias: str = "x") -> Rel:
    plain = Frame("", "_t", "_t", "_t")
    if over == "join":
        pair = leaf(topics[0], plain_frame(rng), alias), leaf(topics[1], plain_frame(rng), "y")
        return join(rng, *pair, rng.choice(KINDS), "arrival")
    one = leaf(topics[0], plain, alias)
    return with_table(rng, one, rng.choice(["INNER", "LEFT"])) if over == "table" else one


def grouped(rng: random.Random, rel: Rel, kind: str) -> tuple[str, str, dict[str, E]]:
    """GROUP BY, DISTINCT or ORDER BY: the query, that of DuckDB, and its items."""
    columns = [c for c in rel.columns if c.type != "time"]
    said, until = period(rng)
    where, duck_where = "", ""
    if rng.random() < 0.3:
        p = predicate(rng, columns, "sqlstream")
        where, duck_where = f" WHERE {p.sql}", f" WHERE {p.duck}"
    keys = {f"k{i}": c for i, c in enumerate(rng.sample(columns, min(len(columns), rng.choice([0, 1, 2]))))}
    if kind != "group":
        keys = keys or {"k0": columns[0]}
        words, shown = (", ".join(f"{e.sql} AS {n}" for n, e in keys.items()) for _ in range(2))
        duck = ", ".join(f"{e.duck} AS {n}" for n, e in keys.items())
        if kind == "order":
            by = ", ".join(f"{e.sql} {rng.choice(['', 'DESC', 'NULLS FIRST'])}" for e in keys.values())
            sql = f"SELECT STREAM {shown} FROM {rel.said}{where} ORDER BY {said}, {by}"
            return sql, f"SELECT {duck}, {until} AS _t FROM {rel.duck}{duck_where}", keys
        sql = f"SELECT STREAM DISTINCT {words}, {said} AS p FROM {rel.said}{where}"
        if said == "ROWTIME":
            sql = f"SELECT STREAM DISTINCT {words}, {said} FROM {rel.said}{where}"
        return sql, f"SELECT DISTINCT {duck}, {until} AS _t FROM {rel.duck}{duck_where}", keys
    made = {f"a{i}": aggregate(rng, columns) for i in range(rng.choice([1, 2, 3]))}
    by = [said, *(e.sql for e in keys.values())]
    rng.shuffle(by)
    having, duck_having = "", ""
    if rng.random() < 0.3:
        having, duck_having = " HAVING COUNT(*) > 1", " HAVING COUNT(*) > 1"
    chosen = keys | made
    words = ", ".join(f"{e.sql} AS {n}" for n, e in chosen.items())
    shown = ", ".join(f"{e.duck} AS {n}" for n, e in chosen.items())
    sql = f"SELECT STREAM {words} FROM {rel.said}{where} GROUP BY {', '.join(by)}{having}"
    of = ", ".join([until, *(e.duck for e in keys.values())])
    return sql, f"SELECT {shown}, {until} AS _t FROM {rel.duck}{duck_where} GROUP BY {of}{duck_having}", chosen


def analytic(rng: random.Random, over: str = "stream") -> Question:
    """Calls with OVER, of which in DuckDB each row asks the rows before it; LAG and those of ROWS are windows there."""
    topics = [topic(rng, "a")]
    made, prepare = ("", "")
    columns = leaf(topics[0], plain_frame(rng), "x").columns[:-1]
    rows = f"(SELECT *, {', '.join(f'{c} AS x__{c}' for c in topics[0].columns)} FROM {accepted('a')})"
    numbers = of_type(columns, "int")
    chosen = {"v0": columns[0], "v1": rng.choice(columns)}
    for i in range(rng.choice([1, 2, 3])):
        part = rng.choice([None, columns[0], rng.choice(columns)])
        by = f"PARTITION BY {part.sql} " if part is not None else ""
        c = rng.choice(numbers)
        name = rng.choice(["COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LAG"])
        type = {"COUNT": "long", "SUM": "long", "AVG": "double"}.get(name, "int")
        if rng.random() < 0.5 or name == "LAG":
            m = rng.choice([0, 0, 0, 1]) if name != "LAG" else 0
            n = m + rng.choice([0, 1, 3])
            more = f", {rng.randrange(n + 1)}" if name == "LAG" else ""
            spec = f"ROWS BETWEEN {n} PRECEDING AND {f'{m} PRECEDING' if m else 'CURRENT ROW'}"
            window = f"({by.replace('.', '__')}ORDER BY _t, _n{'' if name == 'LAG' else f' {spec}'})"
            duck = f"{name}({c.duck}{more}) OVER {window}"
        else:
            more, b = "", rng.choice([0, 0, 1, 3])
            a = b + rng.choice([0, 1, 5, 30])
            upper = f"{seconds(b)} PRECEDING" if b else "CURRENT ROW"
            spec = f"RANGE BETWEEN {seconds(a)} PRECEDING AND {upper}"
            same = f"y.{part.duck} IS NOT DISTINCT FROM x.{part.duck} AND " if part is not None else ""
            asked = {"FIRST_VALUE": "arg_min_null", "LAST_VALUE": "arg_max_null"}.get(name)
            of = f"{name}(y.{c.duck})" if asked is None else f"{asked}(y.{c.duck}, (y._t, y._n))"
            duck = (
                f"(SELECT {of} FROM {rows} y WHERE {same}(y._t, y._n) <= (x._t, x._n)"
                f" AND y._t BETWEEN x._t - {a * 1000} AND x._t - {b * 1000})"
            )
        chosen[f"a{i}"] = E(f"{name}({c.sql}{more}) OVER ({by}{spec})", f"({duck})", type)
    words = ", ".join(f"{e.sql} AS {n}" for n, e in chosen.items())
    shown = ", ".join(f"{e.duck} AS {n}" for n, e in chosen.items())
    where = rng.choice(["", "", f" WHERE {numbers[0].sql} > 0"])
    if where:
        rows_ = rows
        rows = f"(SELECT * FROM {rows_} WHERE {numbers[0].duck} > 0)"
        shown = shown.replace(rows_, rows)
    sql = f"SELECT STREAM {words} FROM a AS x{where}"
    calls = history(rng, topics, starts=(-30_000, 0, 1_700_000_000_000))
    return question(topics, made, sql, f"SELECT {shown}, x._t AS _t FROM {rows} x", [*chosen], calls, prepare=prepare)


def union(rng: random.Random, then: str = "") -> Question:
    """UNION ALL of two or three queries, the same stream in it twice, at times; and its rows sorted."""
    topics = [topic(rng, name) for name in "ab"]
    parts = []
    for alias in ("x", "y", "z")[: rng.choice([2, 2, 3])]:
        over = rng.choice(["stream", "stream", "join"]) if alias == "x" else "stream"
        rel = rows_of(rng, rng.choice([topics, topics[::-1]]), over, alias)
        if rng.random() < 0.3:
            parts.append(grouped(rng, rel, "group"))
        else:
            chosen = {"v0": rel.columns[0], "v1": rng.choice(of_type(rel.columns, "int"))}
            parts.append((*select(rng, rel, chosen), chosen))
    numbers = [[n for n, e in chosen.items() if e.type in ("int", "long")] for _, _, chosen in parts]
    if not all(numbers):
        return union(rng, then)
    names = [rng.choice(x) for x in numbers]
    said = [f"SELECT STREAM {n} AS v FROM ({sql}) AS q" for n, (sql, _, _) in zip(names, parts, strict=True)]
    duck = " UNION ALL ".join(f"SELECT {n} AS v, _t FROM ({d})" for n, (_, d, _) in zip(names, parts, strict=True))
    sql, shown = " UNION ALL ".join(said), {"v": E("u.v", "u__v", "long")}
    if then:
        asked = f"(SELECT v AS u__v, _t AS _e, _t AS _l, _t AS _x FROM ({duck}))"
        sql, duck, shown = grouped(rng, Rel(f"({sql}) AS u", tuple(shown.values()), asked), then)
    calls = history(rng, topics, starts=(-30_000, 0, 1_700_000_000_000))
    return question(topics, "", sql, duck, [*shown], calls)


def periods(rng: random.Random, kind: str, over: str = "stream", then: str = "") -> Question:
    """`then`: what reads the groups: a join, or groups of them."""
    topics = [topic(rng, name) for name in ("ab" if over == "join" or then == "join" else "a")]
    made, prepare = table(rng) if over == "table" else ("", "")
    sql, duck, chosen = grouped(rng, rows_of(rng, topics, over), kind)
    if then:
        frame = plain_frame(rng) if then == "join" else Frame("", "_t", "_t", "_t")
        columns = tuple(E(f"v.{n}", f"v__{n}", e.type) for n, e in chosen.items())
        shown = ", ".join(f"{n} AS v__{n}" for n in chosen)
        asked = f"(SELECT {shown}, {frame.enter} AS _e, {frame.leave} AS _l, {frame.alone} AS _x FROM ({duck}))"
        source = f"({sql})"
        if rng.random() < 0.5:
            made, source = f"{made}CREATE VIEW w AS {sql};\n", "w"
        rel = Rel(f"{source}{frame.over} AS v", columns, asked)
        if then == "join":
            other = leaf(topics[-1], plain_frame(rng), "c")
            number = next((c for c in columns if c.type in ("int", "long")), None)
            if number is None:
                return periods(rng, kind, over, then)
            on = f"{number.sql} = c.k", f"{number.duck} = c__k"
            pair = [rel, other] if rng.random() < 0.5 else [other, rel]
            how = rng.choice(KINDS)
            text = f"{pair[0].said} {how} JOIN {pair[1].said} ON {on[0]}"
            rel = Rel(text, (*pair[0].columns, *pair[1].columns), lives(*pair, how, on[1], "arrival"))
            chosen = items(rng, rel)
            sql, duck = select(rng, rel, chosen)
        elif any(c.type in ("int", "text") for c in columns):
            sql, duck, chosen = grouped(rng, rel, "group")
    calls = history(rng, topics, starts=(-30_000, 0, 1_700_000_000_000))
    return question(topics, made, sql, duck, [*chosen], calls, prepare=prepare)


# ------------------------------------------------------------------ histories


def history(
    rng: random.Random, topics: Sequence[Topic], marked: bool = True, starts: Sequence[int] = (0, 1_700_000_000_000)
) -> list[Call]:
    """Rows of several sources in any order among them, some of them late in their own partition."""
    calls: list[Call] = []
    start = rng.choice(starts)
    now = {(t.name, p): start for t in topics for p in range(t.partitions)}
    late = rng.choice([0.0, 0.0, 0.1])
    together = rng.random() < 0.6
    first = [(t, p) for t in topics for p in range(t.partitions)]  # each partition is there from the beginning
    for n in range(len(first) + rng.choice([4, 12, 25, 45])):
        t = rng.choice(topics)
        t, p = first[n] if n < len(first) else (t, rng.randrange(t.partitions))
        step = rng.choice([0, 0, 1, 1000, 1000, 2000, 5000, 9999]) + (120_000 if rng.random() < 0.03 else 0)
        for place in now if together else ((t.name, p),):
            now[place] += step
        at = now[t.name, p]
        if marked and not late and rng.random() < 0.04 and n >= len(first):
            calls.append(Clock(t.name, min(now[t.name, x] for x in range(t.partitions))))
            continue
        if rng.random() < late:
            at = max(at - rng.choice([1, 1000, 7000]), min(at, 0))
        calls.append(Write(t.name, values(rng, t.columns, KEYS, n), at, partition=p))
    return [*calls, Finish()]


SHAPES: dict[str, Shape] = {
    "sqlstream filter": filter_stream,
    **{f"sqlstream arrival {kind}": partial(one_join, kind=kind) for kind in KINDS},
    **{f"sqlstream expiry {kind}": partial(one_join, kind=kind, emission="expiry") for kind in KINDS[1:]},
    **{f"sqlstream hops {kind}": partial(one_join, kind=kind, frame="hop") for kind in KINDS},
    **{
        f"sqlstream hops expiry {kind}": partial(one_join, kind=kind, frame="hop", emission="expiry")
        for kind in KINDS[1:]
    },
    **{f"sqlstream rows {kind}": partial(one_join, kind=kind, frame="rows") for kind in KINDS},
    **{
        f"sqlstream rows expiry {kind}": partial(one_join, kind=kind, frame="rows", emission="expiry")
        for kind in KINDS[1:]
    },
    **{f"sqlstream istream {kind}": partial(one_join, kind=kind, emission="istream") for kind in KINDS[1:]},
    "sqlstream chain": chain,
    **{f"sqlstream chain, then {kind}": partial(chain, last=kind, emission="expiry") for kind in KINDS[1:]},
    "sqlstream outer chain": partial(chain, outer=True),
    "sqlstream outer chain expiry": partial(chain, outer=True, emission="expiry"),
    "sqlstream outer chain istream": partial(chain, outer=True, emission="istream"),
    "sqlstream view": view,
    "sqlstream stream-table INNER": partial(look_up, kind="INNER"),
    "sqlstream stream-table LEFT": partial(look_up, kind="LEFT"),
    "sqlstream streams and table": partial(look_up, chained=True),
    "sqlstream partners": partners,
    "sqlstream partners of joins": partial(partners, joined=True),
    "sqlstream joined tables": joined_tables,
    "sqlstream tables alone": of_tables,
    "sqlstream report": report,
    **{
        f"sqlstream {kind} over {over}": partial(periods, kind=kind, over=over)
        for kind in ("group", "distinct", "order")
        for over in ("stream", "join", "table")
    },
    **{f"sqlstream groups under {then}": partial(periods, kind="group", then=then) for then in ("join", "group")},
    "sqlstream analytic": analytic,
    "sqlstream union": union,
    "sqlstream sorted union": partial(union, then="order"),
}
