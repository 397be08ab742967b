"""Questions in ksqlDB's SQL that a batch query can answer (`batch_law.py`).

In: a `random.Random`. Out: a `Question` whose history keeps the condition under which the two are equal.
Rule: in DuckDB a chain is a nest of sub-queries: column `x` of source `a` is `a__x` there, `_key` the key of the last
join.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from batch_expressions import E, of_type, predicate, same, value
from batch_law import Call, Clock, Question, Shape, Topic, Write, values

KINDS = ("INNER", "LEFT", "RIGHT", "FULL")
TYPE = {"int": "INT", "long": "BIGINT", "text": "STRING", "double": "DOUBLE", "flag": "BOOLEAN"}
KEYS = {"int": [1, 1, 2, 3], "long": [2**40, 1, 1], "text": ["a", "b", "b", ""]}


@dataclass(frozen=True, slots=True)
class Rel:
    """`said` stands behind FROM; in DuckDB it is a sub-query with the columns, `_key` and `_t`. `keys`: the columns
    that name the key; `equated`: these, and the expressions that stood in ON, which are the key, too."""

    said: str
    columns: tuple[E, ...]
    duck: str
    keys: tuple[str, ...]
    type: str
    rowkey: bool = False
    equated: tuple[str, ...] = ()

    def values(self) -> list[E]:
        """What SELECT may name without making it the key."""
        return [E(f"AS_VALUE({c.sql})", c.duck, c.type) if c.sql in self.keys else c for c in self.columns]


def topic(rng: random.Random, name: str, partitions: int = 1) -> Topic:
    columns = {"k": "key", "j": "key", "n": "int", "s": "text"}
    for column, type in (("m", "long"), ("f", "double"), ("b", "flag")):
        if rng.random() < 0.3:
            columns[column] = type
    return Topic(name, columns, ("k",), partitions)


def typed(t: Topic, key: str) -> Topic:
    return replace(t, columns={c: key if type == "key" else type for c, type in t.columns.items()})


def declared(t: Topic, key: str, what: str = "STREAM", over: str | None = None) -> str:
    word = " KEY" if what == "STREAM" else " PRIMARY KEY"
    columns = ", ".join(f"{c} {TYPE[type]}{word * (c == 'k')}" for c, type in typed(t, key).columns.items())
    place = f"kafka_topic='{over or t.name}', value_format='JSON', partitions={t.partitions}"
    return f"CREATE {what} {t.name} ({columns}) WITH ({place});\n"


def leaf(t: Topic, key: str, over: str | None = None) -> Rel:
    columns = tuple(E(f"{t.name}.{c}", f"{t.name}__{c}", type) for c, type in typed(t, key).columns.items())
    shown = ", ".join(f"{c} AS {t.name}__{c}" for c in t.columns)
    duck = f"(SELECT {shown}, k AS _key, _t FROM {over or t.name} WHERE NOT _gone)"
    return Rel(t.name, columns, duck, (columns[0].sql,), key)


def table(t: Topic, key: str) -> Rel:
    """The last row of each key; those that are gone stay, with `_gone`, since they had a time."""
    shown = ", ".join(f"{c} AS {t.name}__{c}" for c in t.columns)
    last = "QUALIFY row_number() OVER (PARTITION BY k ORDER BY _n DESC) = 1"
    return replace(leaf(t, key), duck=f"(SELECT {shown}, k AS _key, _t, _gone FROM {t.name} {last})")


# ------------------------------------------------------------------ joins of streams


def side(rng: random.Random, rel: Rel, type: str) -> E:
    """What ON equates: what names the key, another column of one source, or an expression of one."""
    if rel.type == type and rng.random() < 0.5 and rel.keys:
        return E(rng.choice(rel.keys), "_key", type)
    e = rng.choice([c for c in rel.columns if c.type == type])
    if type != "text" and rng.random() < 0.25:
        e = E(f"{e.sql} + 1", f"{e.duck} + 1", type)
    return E(e.sql, "_key", type) if e.sql in (*rel.keys, *rel.equated) else e


@dataclass(frozen=True, slots=True)
class Window:
    before: int
    after: int
    grace: int | None

    def said(self) -> str:
        span = f"{self.before} MILLISECONDS"
        if self.before != self.after:
            span = f"({self.before} MILLISECONDS, {self.after} MILLISECONDS)"
        return f" WITHIN {span}" + ("" if self.grace is None else f" GRACE PERIOD {self.grace} MILLISECONDS")


def window(rng: random.Random, *graces: int | None) -> Window:
    grace = rng.choice(graces)
    spans = [(10, 10), (1, 1), (3, 12), (20, 4), (40, 40)]
    # at the very edge of its retention a row is forgotten: a window of one side alone needs some grace
    return Window(*rng.choice([*spans, (0, 10), (10, 0)] if grace is None else spans), grace)


def stream_stream(rng: random.Random, left: Rel, right: Rel, kind: str, w: Window) -> Rel:
    a, b = side(rng, left, right.type), side(rng, right, right.type)
    condition = f"R._t - L._t BETWEEN -{w.before} AND {w.after}"
    return joined(rng, left, right, kind, a, b, w.said(), condition, "greatest(L._t, R._t)")


def stream_table(rng: random.Random, left: Rel, right: Rel, kind: str) -> Rel:
    there = replace(right, duck=f"(SELECT * FROM {right.duck} WHERE NOT _gone)")
    a, b = side(rng, left, right.type), E(right.keys[0], "_key", right.type)
    return joined(rng, left, there, kind, a, b, "", "true", "L._t")


def joined(rng: random.Random, left: Rel, right: Rel, kind: str, a: E, b: E, window: str, more: str, time: str) -> Rel:
    """Rows without a key take no part."""
    columns = (*left.columns, *right.columns)
    shown = ", ".join(c.duck for c in columns)
    sides = [
        f"(SELECT *, {e.duck} AS _on FROM {r.duck} WHERE {e.duck} IS NOT NULL)" for r, e in ((left, a), (right, b))
    ]
    duck = (
        f"(SELECT {shown}, COALESCE(L._on, R._on) AS _key, {time} AS _t"
        f" FROM {sides[0]} L {kind} JOIN {sides[1]} R ON L._on = R._on AND {more})"
    )
    equal = f"{a.sql} = {b.sql}" if rng.random() < 0.7 else f"{b.sql} = {a.sql}"
    word = "JOIN" if kind == "INNER" and rng.random() < 0.5 else f"{kind} JOIN"
    plain = [e.sql for e in (a, b) if "+" not in e.sql]
    keys = (*(left.keys if a.duck == "_key" else ()), *plain)
    equated = (*(left.equated if a.duck == "_key" else ()), a.sql, b.sql)
    if kind == "FULL":
        keys, equated = (), ()
    said = f"{left.said} {word} {right.said}{window} ON {equal}"
    return Rel(said, columns, duck, tuple(dict.fromkeys(keys)), right.type, not keys, equated)


def items(rng: random.Random, rel: Rel) -> dict[str, E]:
    chosen = {f"v{i}": c for i, c in enumerate(rel.values()) if rng.random() < 0.5}
    for i in range(rng.choice([0, 1])):
        chosen[f"e{i}"] = value(rng, rel.values(), "ksqldb")
    return chosen or {"v0": rel.values()[-1]}


def select(rng: random.Random, rel: Rel, chosen: dict[str, E]) -> tuple[str, str]:
    """SELECT … FROM … [WHERE …], in both languages."""
    key = "ROWKEY" if rel.rowkey else rng.choice(rel.keys)
    sql = f"SELECT {key} AS kk, {', '.join(f'{e.sql} AS {n}' for n, e in chosen.items())} FROM {rel.said}"
    duck = f"SELECT _key AS kk, {', '.join(f'{e.duck} AS {n}' for n, e in chosen.items())}, _t FROM {rel.duck}"
    if rng.random() < 0.25:
        p = predicate(rng, rel.columns, "ksqldb")
        sql, duck = f"{sql} WHERE {p.sql}", f"{duck} WHERE {p.duck}"
    return sql, duck


def question(
    topics: Sequence[Topic], key: str, declarations: str, query: str, duck: str, columns: Sequence[str],
    calls: Sequence[Call], stands: bool = False, keys: tuple[str, ...] = ("KK",)
) -> Question:  # fmt: skip
    made = "TABLE" if stands else "STREAM"
    how = " WITH (key_format='JSON')" if len(keys) > 1 else ""
    sql = f"{declarations}CREATE {made} o{how} AS {query};"
    names = tuple(c.upper() for c in columns)
    return Question("ksqldb", tuple(typed(t, key) for t in topics), sql, duck, names, keys, tuple(calls), "o", stands)


def one_join(rng: random.Random, kind: str) -> Question:
    return chain(rng, [(kind, window(rng, None, 1, 5, 30) if kind == "INNER" else window(rng, 0, 0, 5, 30))])


def inner_chain(rng: random.Random, last: str | None = None) -> Question:
    """Two to four joins, all INNER but at most the last one."""
    count = rng.choice([2, 2, 3, 4]) - 1
    steps = [("INNER", window(rng, None, 1, 5, 30)) for _ in range(count)]
    kind = last or rng.choice(KINDS)
    steps.append((kind, window(rng, 0, 5, 30) if kind != "INNER" else window(rng, None, 0, 5)))
    return chain(rng, steps)


def outer_first(rng: random.Random) -> Question:
    """Outer joins with GRACE, then joins that keep their rows for longer than the whole history, and pad behind it."""
    count = rng.choice([1, 1, 2])
    steps = [(rng.choice(KINDS), window(rng, 0, 5, 30))]
    for _ in range(count):
        kind = rng.choice(KINDS)
        steps.append((kind, replace(window(rng, 0), grace=20_000) if kind != "INNER" else window(rng, None)))
    return chain(rng, steps)


def chain(rng: random.Random, steps: Sequence[tuple[str, Window]]) -> Question:
    key, partitions = rng.choice(["int", "int", "long", "text"]), rng.choice([1, 1, 2])
    topics = [topic(rng, name, partitions) for name in "abcde"[: len(steps) + 1]]
    over = {}
    if rng.random() < 0.12:  # two declarations of one topic
        topics[-1] = replace(topics[0], name="z")
        over["z"] = topics[0].name
    declarations = "".join(declared(t, key, over=over.get(t.name)) for t in topics)
    rel, *others = [leaf(t, key, over.get(t.name)) for t in topics]
    for other, (kind, w) in zip(others, steps, strict=True):
        rel = stream_stream(rng, rel, other, kind, w)
    fed = [t for t in topics if t.name not in over]
    graces = [w.grace for _, w in steps]
    inner = all(kind == "INNER" for kind, _ in steps)
    # rows of an inner join may come out of order, by less than its grace
    late = min(1000 if g is None else max(g - 1, 0) for g in graces) if inner else 0
    chosen = items(rng, rel)
    sql, duck = select(rng, rel, chosen)
    calls = history(rng, fed, key, late)
    return question(fed, key, declarations, sql, duck, ("kk", *chosen), calls)


# ------------------------------------------------------------------ histories


def history(rng: random.Random, topics: Sequence[Topic], key: str, late: int = 0) -> list[Call]:
    """Rows in the order of their times over all sources, at most `late` behind; then a clock beyond every close."""
    calls: list[Call] = []
    now, fast = 100, rng.choice([1, 1, 3])
    for n in range(rng.choice([6, 12, 25, 45])):
        now += rng.choice([0, 0, 1, 2, 5]) * fast + (rng.choice([60, 300]) if rng.random() < 0.04 else 0)
        t = rng.choice(topics)
        if rng.random() < 0.03:
            calls.append(Clock(t.name, now - late))
            continue
        row = values(rng, t.columns, [None, *KEYS[key]], n)
        at = max(now - rng.choice([0, 0, late // 2, late]), 0)
        calls.append(Write(t.name, row, at, rng.random() < 0.06, rng.randrange(t.partitions)))
    return [*calls, *(Clock(t.name, now + 100_000) for t in topics)]


def table_history(rng: random.Random, topics: Sequence[Topic], key: str) -> list[Call]:
    """Rows in any order and of any time; a fifth deletes."""
    calls: list[Call] = []
    for n in range(rng.choice([3, 8, 20, 40])):
        t = rng.choice(topics)
        row = values(rng, t.columns, KEYS[key], n)
        if row["k"] is not None:
            calls.append(Write(t.name, row, rng.randint(0, 60), rng.random() < 0.2, 0))
    return calls


# ------------------------------------------------------------------ one stream, one table


def filter_stream(rng: random.Random) -> Question:
    """WHERE, PARTITION BY; or two queries into one stream."""
    key = rng.choice(["int", "text"])
    t = topic(rng, "a", rng.choice([1, 2]))
    rel = leaf(t, key)
    chosen = items(rng, rel)
    calls = [c for c in history(rng, [t], key, 50) if not (isinstance(c, Write) and c.gone)]
    by = rng.choice(of_type(rel.columns, "int", "text"))
    sql, duck = select(rng, rel, chosen)
    if rng.random() < 0.4 and by.sql not in rel.keys and by.sql not in [e.sql for e in chosen.values()]:
        sql = f"{sql.replace('SELECT a.k AS kk', f'SELECT {by.sql} AS kk')} PARTITION BY {by.sql}"
        duck = duck.replace("SELECT _key AS kk", f"SELECT {by.duck} AS kk")
        chosen = dict(chosen)
    found = question([t], key, declared(t, key), sql, duck, ("kk", *chosen), calls)
    if rng.random() < 0.3 and "PARTITION" not in sql:
        p = predicate(rng, rel.columns, "ksqldb")
        said = ", ".join(f"{e.sql} AS {n}" for n, e in chosen.items())
        shown = ", ".join(f"{e.duck} AS {n}" for n, e in chosen.items())
        more = f"\nINSERT INTO o SELECT a.k AS kk, {said} FROM a WHERE {p.sql};"
        both = f"{duck} UNION ALL SELECT _key, {shown}, _t FROM {rel.duck} WHERE {p.duck}"
        found = replace(found, sql=found.sql + more, duck=both)
    return found


def filter_table(rng: random.Random) -> Question:
    key = rng.choice(["int", "text", "long"])
    t = topic(rng, "a")
    rel = replace(table(t, key), duck=f"(SELECT * FROM {table(t, key).duck} WHERE NOT _gone)")
    chosen = items(rng, rel)
    sql, duck = select(rng, rel, chosen)
    return question([t], key, declared(t, key, "TABLE"), sql, duck, ("kk", *chosen), table_history(rng, [t], key), True)


# ------------------------------------------------------------------ tables


def two_tables(rng: random.Random, left: Rel, right: Rel, kind: str) -> Rel:
    """On primary keys. A side that is gone had a time, which the last row may have taken on: then none is told."""
    columns = (*left.columns, *right.columns)
    there = {"INNER": "lh AND rh", "LEFT": "lh", "RIGHT": "rh", "FULL": "(lh OR rh)"}[kind]
    shown = ", ".join(
        f"CASE WHEN {h} THEN {c.duck} END AS {c.duck}" for r, h in ((left, "lh"), (right, "rh")) for c in r.columns
    )
    duck = (
        f"(SELECT {shown}, k AS _key, CASE WHEN lh AND rh THEN CASE WHEN lt + rt IS NOT NULL THEN greatest(lt, rt) END"
        f" WHEN lh AND rk IS NULL THEN lt WHEN rh AND lk IS NULL THEN rt END AS _t, NOT ({there}) AS _gone"
        f" FROM (SELECT L.* EXCLUDE (_key, _t, _gone), R.* EXCLUDE (_key, _t, _gone), COALESCE(L._key, R._key) AS k,"
        f" L._key AS lk, R._key AS rk, L._t AS lt, R._t AS rt, L._gone IS NOT DISTINCT FROM false AS lh,"
        f" R._gone IS NOT DISTINCT FROM false AS rh FROM {left.duck} L FULL JOIN {right.duck} R ON L._key = R._key))"
    )
    a, b = rng.choice(left.keys), right.keys[0]
    said = f"{left.said} {kind} JOIN {right.said} ON {rng.choice([f'{a} = {b}', f'{b} = {a}'])}"
    return Rel(said, columns, duck, (*left.keys, b) if kind != "FULL" else (), left.type, kind == "FULL")


def join_tables(rng: random.Random, kind: str | None = None, joins: int = 1) -> Question:
    key = rng.choice(["int", "text", "long"])
    topics = [topic(rng, name) for name in "abcd"[: joins + 1]]
    rel, *others = [table(t, key) for t in topics]
    for step, other in enumerate(others, 1):
        rel = two_tables(rng, rel, other, kind or rng.choice(KINDS if step == joins else KINDS[:3]))
    chosen = items(rng, rel)
    there = replace(rel, duck=f"(SELECT * FROM {rel.duck} WHERE NOT _gone)")
    sql, duck = select(rng, there, chosen)
    declarations = "".join(declared(t, key, "TABLE") for t in topics)
    return question(topics, key, declarations, sql, duck, ("kk", *chosen), table_history(rng, topics, key), True)


def refer(rng: random.Random, kind: str) -> Question:
    """On a foreign key, alone or before a join on the primary key. No query tells a time: the last change gave it."""
    key = rng.choice(["int", "text", "long"])
    topics = [topic(rng, name) for name in "abc"[: rng.choice([2, 2, 3])]]
    left, right, *more = [table(t, key) for t in topics]
    refers = E("a.j", "a__j", key)
    if key != "text" and rng.random() < 0.3:
        refers = E("a.j + 1", "a__j + 1", key)
    shown = ", ".join(c.duck for c in (*left.columns, *right.columns))
    duck = (
        f"(SELECT {shown}, L._key, NULL::BIGINT AS _t, false AS _gone"
        f" FROM (SELECT * FROM {left.duck} WHERE NOT _gone) L {kind} JOIN"
        f" (SELECT * FROM {right.duck} WHERE NOT _gone) R ON {refers.duck} = R._key)"
    )
    said = f"{left.said} {kind} JOIN {right.said} ON {refers.sql} = {right.keys[0]}"
    rel = Rel(said, (*left.columns, *right.columns), duck, left.keys, key)
    for other in more:
        rel = two_tables(rng, rel, other, rng.choice(["INNER", "LEFT"]))
    chosen = items(rng, rel)
    there = replace(rel, duck=f"(SELECT * FROM {rel.duck} WHERE NOT _gone)")
    sql, duck = select(rng, there, chosen)
    declarations = "".join(declared(t, key, "TABLE") for t in topics)
    return question(topics, key, declarations, sql, duck, ("kk", *chosen), table_history(rng, topics, key), True)


def look_up(rng: random.Random, kind: str | None = None, chained: bool = False) -> Question:
    """A stream and a table that is there before it; `chained`: windowed INNER joins and tables, at most one outer join
    of streams behind them, then tables."""
    key = rng.choice(["int", "text", "long"])
    streams = [topic(rng, name) for name in ("abc" if chained else "a")]
    tables = [topic(rng, name) for name in ("uvw" if chained else "u")]
    rel, *others = [leaf(t, key) for t in streams]
    looked = [table(t, key) for t in tables]
    if not chained:
        rel = stream_table(rng, rel, looked[0], kind or "LEFT")
    else:
        for other, outer in zip(others, (False, True), strict=True):
            if rng.random() < 0.6:
                rel = stream_table(rng, rel, looked.pop(), rng.choice(["INNER", "LEFT"]))
            how = rng.choice(KINDS) if outer else "INNER"
            rel = stream_stream(rng, rel, other, how, window(rng, 0, 5, 30) if outer else window(rng, None, 1, 5))
        if rng.random() < 0.6:
            rel = stream_table(rng, rel, looked.pop(), rng.choice(["INNER", "LEFT"]))
        tables = [t for t in tables if t.name not in [x.said for x in looked]]
    chosen = items(rng, rel)
    sql, duck = select(rng, rel, chosen)
    declarations = "".join(declared(t, key) for t in streams) + "".join(declared(t, key, "TABLE") for t in tables)
    calls = [*(table_history(rng, tables, key) if tables else []), *history(rng, streams, key)]
    return question([*streams, *tables], key, declarations, sql, duck, ("kk", *chosen), calls)


# ------------------------------------------------------------------ groups


def aggregates(rng: random.Random, columns: Sequence[E], stream: bool) -> dict[str, E]:
    chosen = {"c": same("COUNT(*)", "long")}
    for i in range(rng.choice([1, 2])):
        f = rng.choice(["COUNT", "SUM", "AVG", *(["MIN", "MAX"] if stream else [])])
        n = rng.choice(of_type(columns, "int", "long", *(["text", "double"] if f == "COUNT" else [])))
        nothing = f in ("SUM", "AVG")  # of nothing they are 0
        chosen[f"a{i}"] = E(f"{f}({n.sql})", f"COALESCE({f}({n.duck}), 0)" if nothing else f"{f}({n.duck})", "long")
    return chosen


def group(rng: random.Random, of: str) -> Question:
    """GROUP BY over a stream, a join of streams, a table or tables; groups that have lost all rows are left out."""
    key = rng.choice(["int", "text"])
    tables = of.startswith("table")
    topics = [topic(rng, name) for name in ("ab" if of in ("joined", "tables") else "a")]
    rel, *others = [table(t, key) if tables else leaf(t, key) for t in topics]
    for other in others:
        if tables:
            rel = two_tables(rng, rel, other, rng.choice(KINDS))
        else:
            kind = rng.choice(KINDS)
            rel = stream_stream(rng, rel, other, kind, window(rng, 0, 5))
    if tables:
        rel = replace(rel, duck=f"(SELECT * FROM {rel.duck} WHERE NOT _gone)")
    columns = list(rel.columns)
    by = rng.sample(of_type(columns, "int", "long", "text"), rng.choice([1, 1, 2]))
    chosen = aggregates(rng, columns, not tables)
    where = [predicate(rng, columns, "ksqldb")] if rng.random() < 0.3 else []
    having = " HAVING COUNT(*) > 1" if rng.random() < 0.3 else " HAVING COUNT(*) > 0" if tables else ""
    names = [f"g{i}" for i in range(len(by))]
    sql = (
        f"SELECT {', '.join(f'{e.sql} AS {n}' for e, n in zip(by, names, strict=True))},"
        f" {', '.join(f'{e.sql} AS {n}' for n, e in chosen.items())} FROM {rel.said}"
        f"{''.join(f' WHERE {p.sql}' for p in where)} GROUP BY {', '.join(e.sql for e in by)}{having}"
    )
    duck = (
        f"SELECT {', '.join(f'{e.duck} AS {n}' for e, n in zip(by, names, strict=True))},"
        f" {', '.join(f'{e.duck} AS {n}' for n, e in chosen.items())}, {'NULL' if tables else 'max(_t)'} AS _t"
        f" FROM {rel.duck}"
        f" WHERE {' AND '.join([f'{e.duck} IS NOT NULL' for e in by] + [p.duck for p in where])}"
        f" GROUP BY {', '.join(e.duck for e in by)}{having}"
    )
    declarations = "".join(declared(t, key, "TABLE" if tables else "STREAM") for t in topics)
    calls = table_history(rng, topics, key) if tables else history(rng, topics, key)
    columns_out = (*names, *chosen)
    return question(topics, key, declarations, sql, duck, columns_out, calls, True, tuple(n.upper() for n in names))


def windowed(
    rng: random.Random, key: str, window: str, final: bool, duck: Callable[[Rel, E, str, str], str]
) -> Question:
    """GROUP BY in windows that take all rows: those of FINAL are closed at the end. `duck`: the same of the rows, the
    group, its aggregates and HAVING."""
    t = topic(rng, "a", rng.choice([1, 2]))
    rel = leaf(t, key)
    by = rng.choice(of_type(list(rel.columns), "int", "long", "text"))
    chosen = aggregates(rng, list(rel.columns), True)
    having = rng.choice(["", "", " HAVING COUNT(*) > 1"])
    sql = (
        f"SELECT {by.sql} AS g, WINDOWSTART AS ws, WINDOWEND AS we,"
        f" {', '.join(f'{e.sql} AS {n}' for n, e in chosen.items())} FROM {rel.said} WINDOW {window}"
        f" GROUP BY {by.sql}{having}{' EMIT FINAL' if final else ''}"
    )
    asked = duck(rel, by, ", ".join(f"{e.duck} AS {n}" for n, e in chosen.items()), having)
    calls = [*history(rng, [t], key), Clock(t.name, 10_000_000)]
    columns = ("g", "ws", "we", *chosen)
    return question([t], key, declared(t, key), sql, asked, columns, calls, True, ("G",))


def windows(rng: random.Random, final: bool) -> Question:
    """TUMBLING and HOPPING."""
    key, size = rng.choice(["int", "text"]), rng.choice([1, 7, 30])
    step = size if rng.random() < 0.5 else rng.randint((size + 3) // 4, size)
    kind = (
        f"TUMBLING (SIZE {size} MILLISECONDS"
        if step == size
        else f"HOPPING (SIZE {size} MILLISECONDS, ADVANCE BY {step} MILLISECONDS"
    )
    starts = f"generate_series(_t - _t % {step} - {size // step * step}, _t, {step})"

    def duck(rel: Rel, by: E, chosen: str, having: str) -> str:
        return (
            f"SELECT {by.duck} AS g, ws, ws + {size} AS we, {chosen}, max(_t) AS _t"
            f" FROM (SELECT *, unnest({starts}) AS ws FROM {rel.duck})"
            f" WHERE ws >= 0 AND _t >= ws AND _t < ws + {size} AND {by.duck} IS NOT NULL"
            f" GROUP BY {by.duck}, ws{having}"
        )

    return windowed(rng, key, f"{kind}, GRACE PERIOD 1 HOUR)", final, duck)


def sessions(rng: random.Random, final: bool) -> Question:
    """Sessions, in DuckDB as islands: one begins where a row is more than the gap behind the one before."""
    key, gap = rng.choice(["int", "text"]), rng.choice([1, 4, 30])
    begins = f"CASE WHEN _t - lag(_t) OVER w <= {gap} THEN 0 ELSE 1 END"

    def duck(rel: Rel, by: E, chosen: str, having: str) -> str:
        rows = f"(SELECT *, {by.duck} AS _g FROM {rel.duck} WHERE {by.duck} IS NOT NULL)"
        return (
            f"SELECT _g AS g, min(_t) AS ws, max(_t) AS we, {chosen},"
            f" max(_t) AS _t FROM (SELECT *, sum(_begins) OVER (PARTITION BY _g ORDER BY _t) AS _session"
            f" FROM (SELECT *, {begins} AS _begins FROM {rows} WINDOW w AS (PARTITION BY _g ORDER BY _t)))"
            f" GROUP BY _g, _session{having}"
        )

    return windowed(rng, key, f"SESSION ({gap} MILLISECONDS, GRACE PERIOD 1 HOUR)", final, duck)


SHAPES: dict[str, Shape] = {
    "ksqldb sessions": partial(sessions, final=False),
    "ksqldb sessions final": partial(sessions, final=True),
    "ksqldb windows": partial(windows, final=False),
    "ksqldb windows final": partial(windows, final=True),
    "ksqldb filter": filter_stream,
    "ksqldb table filter": filter_table,
    **{f"ksqldb streams {kind}": partial(one_join, kind=kind) for kind in KINDS},
    "ksqldb streams chain": inner_chain,
    "ksqldb outer first": outer_first,
    **{f"ksqldb stream-table {kind}": partial(look_up, kind=kind) for kind in KINDS[:2]},
    "ksqldb streams and tables": partial(look_up, chained=True),
    **{f"ksqldb tables {kind}": partial(join_tables, kind=kind) for kind in KINDS},
    "ksqldb tables chain": partial(join_tables, joins=3),
    **{f"ksqldb reference {kind}": partial(refer, kind=kind) for kind in KINDS[:2]},
    **{f"ksqldb {of} group": partial(group, of=of) for of in ("stream", "joined", "table", "tables")},
}
