"""Questions in Lenses SQL that a batch query can answer (`batch_law.py`).

In: a `random.Random`. Out: a `Question` whose history keeps the condition under which the two are equal.
Rule: a `Rel` is a source or a WITH name, told in both languages; joins are made of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from batch_expressions import E, of_type, predicate, same, value
from batch_law import Call, Clock, Finish, Pace, Question, Shape, Topic, Write, values

KINDS = ("INNER", "LEFT", "RIGHT", "OUTER")
DUCK_KIND = {"INNER": "INNER", "LEFT": "LEFT", "RIGHT": "RIGHT", "OUTER": "FULL"}
FORMAT = {"int": "INT", "long": "LONG", "text": "STRING"}
KEYS = {"int": [1, 1, 2, 3], "long": [2**40, 1, 1], "text": ["a", "b", "b", ""]}
TYPE = {"int": "INT", "long": "LONG", "text": "STRING", "double": "DOUBLE", "flag": "BOOLEAN", "ints": "INT[]"}


@dataclass(frozen=True, slots=True)
class Rel:
    """A source: its name in the dialect, the types of its key and fields, and the query that it is in DuckDB.
    `statements` make it."""

    name: str
    key: str | None
    fields: dict[str, str]
    duck: str
    statements: str = ""

    def columns(self) -> list[E]:
        return [E(f"{self.name}.{f}", f"{self.name}.{f}", type) for f, type in self.fields.items()]

    def whole_key(self) -> E:
        return E(f"{self.name}._key", f"{self.name}._key", self.key or "none")


@dataclass(frozen=True, slots=True)
class Setting:
    """What the joins of a script share."""

    key: str
    grace: int
    span: tuple[int, ...]


def setting(rng: random.Random) -> Setting:
    return Setting(rng.choice(["int", "int", "text", "long"]), rng.choice([0, 0, 0, 5, 30]), (0, 3, 10, 10, 40))


def topic(rng: random.Random, name: str, key: str, partitions: bool = True) -> Topic:
    """A topic with fields of several types; `j` has the type of the key, so that it may be joined on."""
    fields = {"j": "key", "n": "int", "s": "text"}
    for field, type in (("m", "long"), ("f", "double"), ("b", "flag")):
        if rng.random() < 0.3:
            fields[field] = type
    return Topic(name, {"_key": "key", **fields}, ("_key",), rng.choice([1, 1, 2]) if partitions else 1)


def typed(t: Topic, key: str) -> Topic:
    return replace(t, columns={c: key if type == "key" else type for c, type in t.columns.items()})


def question(
    topics: Sequence[Topic],
    s: Setting,
    script: str,
    duck: str,
    columns: Iterable[str],
    calls: Sequence[Call],
    stands: bool = False,
) -> Question:
    """What a script writes into `o`: a key and these columns."""
    named = ("_key", *columns)
    return Question(
        "lenses", tuple(typed(t, s.key) for t in topics), script, duck, named, ("_key",), tuple(calls), stands=stands
    )


def declared(topics: Sequence[Topic], s: Setting) -> str:
    lines = ["SET defaults.topic.autocreate=true;"]
    if s.grace:
        lines.append(f"SET braid.lenses.grace={s.grace}ms;")
    for t in topics:
        fields = ", ".join(f"{c} {TYPE[type]}" for c, type in typed(t, s.key).columns.items())
        lines.append(
            f"CREATE TABLE {t.name}({fields}) FORMAT ({FORMAT[s.key]}, JSON) PROPERTIES (partitions={t.partitions});"
        )
    return "\n".join(lines) + "\n"


def leaf(t: Topic, s: Setting) -> Rel:
    fields = {c: type for c, type in typed(t, s.key).columns.items() if c != "_key"}
    return Rel(t.name, s.key, fields, f"(SELECT * FROM {t.name} WHERE NOT _gone)")


def filtered(rng: random.Random, rel: Rel, name: str, stream: str = "STREAM") -> Rel:
    """WITH name AS (SELECT * … WHERE …)."""
    columns = [E(f, f, type) for f, type in rel.fields.items()]
    p = predicate(rng, columns, "lenses")
    made = f"WITH {name} AS (SELECT {stream} * FROM {rel.name} WHERE {p.sql});\n"
    return replace(rel, name=name, duck=f"(SELECT * FROM {rel.duck} WHERE {p.duck})", statements=rel.statements + made)


# ------------------------------------------------------------------ joins


@dataclass(frozen=True, slots=True)
class Joined:
    """A join as the tail of a query: what follows SELECT, in both languages."""

    items: dict[str, E]  # output name -> expression
    key: str | None
    source: str
    duck_from: str
    duck_key: str


def on(rng: random.Random, left: Rel, right: Rel) -> tuple[str, str, str, str | None]:
    """(ON in the dialect, ON in DuckDB, the key of the result in DuckDB, its type)"""

    def side(rel: Rel) -> E:
        found = [c for c in (*rel.columns(), rel.whole_key()) if c.type == left.key]
        e = rng.choice(found)
        if e.type in ("int", "long") and rng.random() < 0.2:
            return E(f"{e.sql} + 1", f"{e.duck} + 1", e.type)
        return e

    if left.key is None or left.key != right.key:
        raise ValueError("keys of two types")
    if rng.random() < 0.4:
        equal, a, b = "", left.whole_key(), right.whole_key()
    else:
        a, b = side(left), side(right)
        equal = f"{a.sql} = {b.sql}" if rng.random() < 0.7 else f"{b.sql} = {a.sql}"
    condition = f"{a.duck} = {b.duck}"
    if equal and rng.random() < 0.3:
        rel = rng.choice([left, right])
        p = predicate(rng, rel.columns(), "lenses")
        equal, condition = f"{equal} AND {p.sql}", f"{condition} AND {p.duck}"
    return f" ON {equal}" if equal else "", condition, f"COALESCE({a.duck}, {b.duck})", left.key


def windowed(rng: random.Random, s: Setting, left: Rel, right: Rel, kind: str) -> Joined:
    """left JOIN right WITHIN d"""
    within = rng.choice(s.span)
    said, condition, key, type = on(rng, left, right)
    window = f" WITHIN {within}ms"
    tail = said + window if rng.random() < 0.5 else window + said
    word = "JOIN" if kind == "INNER" and rng.random() < 0.5 else f"{kind} JOIN"
    source = f"{left.name} {word} {right.name}{tail}"
    duck = (
        f"{left.duck} {left.name} {DUCK_KIND[kind]} JOIN {right.duck} {right.name}"
        f" ON {condition} AND abs({left.name}._t - {right.name}._t) <= {within}"
    )
    return Joined(items(rng, left, right), type, source, duck, key)


def items(rng: random.Random, *rels: Rel) -> dict[str, E]:
    """Some fields of each side under new names, and expressions over several."""
    chosen: dict[str, E] = {}
    every = [c for rel in rels for c in rel.columns()]
    for c in every:
        if rng.random() < (0.8 if c.sql.endswith((".j", ".s", "j0")) else 0.5):
            chosen[f"{c.sql.split('.')[-1][0]}{len(chosen)}"] = c
    for _ in range(rng.choice([0, 0, 1])):
        e = value(rng, every, "lenses")
        chosen[f"{e.type[0]}{len(chosen)}"] = e
    return chosen or {"c0": every[0]}


def named(rng: random.Random, joined: Joined, name: str, made: str, word: str = "STREAM") -> Rel:
    """WITH name AS (SELECT … FROM join [WHERE …])."""
    sql, duck = select(rng, joined, word)
    fields = {n: e.type for n, e in joined.items.items()}
    return Rel(name, joined.key, fields, f"({duck})", f"{made}WITH {name} AS ({sql});\n")


def select(
    rng: random.Random, joined: Joined, word: str = "STREAM", where: float = 0.25, time: str | None = None
) -> tuple[str, str]:
    sql = ", ".join(f"{e.sql} AS {n}" for n, e in joined.items.items())
    duck = ", ".join(f"{e.duck} AS {n}" for n, e in joined.items.items())
    at = time or _latest(joined)
    sql, duck = (
        f"SELECT {word} {sql} FROM {joined.source}",
        f"SELECT {joined.duck_key} AS _key, {duck}, {at} AS _t FROM {joined.duck_from}",
    )
    if rng.random() < where:
        p = predicate(rng, list(joined.items.values()), "lenses")
        sql, duck = f"{sql} WHERE {p.sql}", f"{duck} WHERE {p.duck}"
    return sql, duck


def _latest(joined: Joined) -> str:
    words = joined.source.split()
    left, right = words[0], words[words.index("JOIN") + 1]
    return f"greatest({left}._t, {right}._t)"


def result(
    rng: random.Random,
    joined: Joined,
    made: str,
    topics: Sequence[Topic],
    s: Setting,
    calls: Sequence[Call],
    word: str = "STREAM",
    stands: bool = False,
) -> Question:
    sql, duck = select(rng, joined, word)
    script = declared(topics, s) + made + f"INSERT INTO o {sql};"
    return question(topics, s, script, duck, joined.items, calls, stands=stands)


def one_join(rng: random.Random, kind: str) -> Question:
    s = setting(rng)
    topics = [topic(rng, name, s.key) for name in "ab"]
    left, right = (leaf(t, s) for t in topics)
    if rng.random() < 0.2:
        left = filtered(rng, left, "fa")
    joined = windowed(rng, s, left, right, kind)
    return result(rng, joined, left.statements + right.statements, topics, s, history(rng, topics, s))


def chain(rng: random.Random, joins: int | None = None, bushy: bool | None = None) -> Question:
    """Two to four joins, left-deep or bushy, over as many topics or fewer."""
    s = setting(rng)
    joins = joins or rng.choice([2, 2, 3, 4])
    count = joins + 1
    topics = [topic(rng, name, s.key) for name in "abcde"[:count]]
    if rng.random() < 0.15:
        topics[-1] = topics[0]
    made = ""
    rels: list[Rel] = []
    for i, t in enumerate(topics):
        rel = leaf(t, s)
        if rng.random() < 0.15 or t in topics[:i]:
            rel = filtered(rng, rel, f"f{i}")
            made += rel.statements
        rels.append(replace(rel, statements=""))
    bushy = rng.random() < 0.4 if bushy is None else bushy
    step = 0
    while len(rels) > 2:
        at = rng.randrange(len(rels) - 1) if bushy else 0
        joined = windowed(rng, s, rels[at], rels[at + 1], rng.choice(KINDS))
        step += 1
        rel = named(rng, joined, f"w{step}", "")
        made += rel.statements
        rels[at : at + 2] = [replace(rel, statements="")]
    joined = windowed(rng, s, *rels, rng.choice(KINDS))
    unique = list({t.name: t for t in topics}.values())
    return result(rng, joined, made, unique, s, history(rng, unique, s))


# ------------------------------------------------------------------ histories


def history(rng: random.Random, topics: Sequence[Topic], s: Setting, length: int | None = None) -> list[Call]:
    """Rows of several sources in any order among them, none further behind its own source's clock than the grace."""
    length = length or rng.choice([6, 12, 25, 45])
    pace = {t.name: Pace(t.partitions) for t in topics}
    now = {t.name: 100 for t in topics}
    fast = rng.choice([1, 1, 3])
    together = rng.random() < 0.5
    calls: list[Call] = []
    for n in range(length):
        t = rng.choice(topics)
        p = pace[t.name]
        step = rng.choice([0, 0, 1, 2, 5]) * fast + (200 if rng.random() < 0.04 else 0)
        for name in now if together else (t.name,):
            now[name] += step
        at = max(now[t.name] - rng.choice([0, 0, 0, 4, 30]), p.clock - s.grace, 0)
        if rng.random() < 0.03:
            p.clock = max(p.clock, at)
            calls.append(Clock(t.name, at))
            continue
        partition = rng.randrange(t.partitions)
        row = values(rng, t.columns, [None, *KEYS[s.key]], n)
        p.show(partition, at)
        calls.append(Write(t.name, row, at, rng.random() < 0.06, partition))
    return [*calls, Finish()]


SHAPES: dict[str, Shape] = {f"lenses windowed {kind}": partial(one_join, kind=kind) for kind in KINDS}
SHAPES["lenses windowed chain"] = chain


# ------------------------------------------------------------------ one stream


def filter_stream(rng: random.Random) -> Question:
    s = setting(rng)
    t = topic(rng, "a", s.key)
    rel = leaf(t, s)
    rel = replace(rel, name="a", duck="(SELECT * FROM a)")
    calls = [c for c in history(rng, [t], s) if not (isinstance(c, Write) and c.gone)]
    e = rng.choice(of_type(rel.columns(), "int", "text", "long"))
    key = rng.choice([None, e])
    joined = Joined(items(rng, rel), None, "a", "a", (key or rel.whole_key()).duck)
    sql, duck = select(rng, joined, where=0.8, time="a._t")
    if key:
        sql = sql.replace(" FROM ", f", {key.sql} AS _key FROM ", 1)
    script = f"{declared([t], s)}INSERT INTO o {sql};"
    return question([t], s, script, duck, joined.items, calls)


def lateral(rng: random.Random) -> Question:
    """One or two LATERALs, the second over an array of both."""
    s = setting(rng)
    t = Topic("a", {"_key": "key", "n": "int", "xs": "ints", "ys": "ints"}, ("_key",), rng.choice([1, 2]))
    source, duck = "a LATERAL xs AS x", "(SELECT * FROM a WHERE NOT _gone) a, unnest(a.xs) u(x)"
    columns = [same("n", "int"), same("x", "int")]
    if rng.random() < 0.5:
        array = rng.choice(["ys", "[x, n, 5]"])
        source, duck = f"{source} LATERAL {array} AS y", f"{duck}, unnest({array}) v(y)"
        columns.append(same("y", "int"))
    chosen = {f"c{i}": c for i, c in enumerate(columns)} | {"v": value(rng, columns, "lenses")}
    sql, asked = select(rng, Joined(chosen, None, source, duck, "a._key"), where=0.5, time="a._t")
    script = f"{declared([t], s)}INSERT INTO o {sql};"
    calls = history(rng, [t], s)
    return question([t], s, script, asked, chosen, calls)


# ------------------------------------------------------------------ tables


def table(t: Topic, s: Setting) -> Rel:
    """The last row of each key; those that are gone stay, with `_gone`, since they had a time."""
    last = f"(SELECT * FROM {t.name} QUALIFY row_number() OVER (PARTITION BY _key ORDER BY _n DESC) = 1)"
    made = f"WITH t{t.name} AS (SELECT TABLE * FROM {t.name});\n"
    return replace(leaf(t, s), name=f"t{t.name}", duck=last, statements=made)


def standing(rel: Rel) -> Rel:
    return replace(rel, duck=f"(SELECT * FROM {rel.duck} WHERE NOT _gone)")


def table_where(rng: random.Random, rel: Rel, t: Topic) -> Rel:
    p = predicate(rng, [E(f, f, type) for f, type in rel.fields.items()], "lenses")
    made = f"WITH {rel.name} AS (SELECT TABLE * FROM {t.name} WHERE {p.sql});\n"
    duck = f"(SELECT * REPLACE (_gone OR ({p.duck}) IS NOT TRUE AS _gone) FROM {rel.duck})"
    return replace(rel, duck=duck, statements=made)


def table_history(rng: random.Random, topics: Sequence[Topic], s: Setting) -> list[Call]:
    """Rows in any order and of any time; a quarter deletes."""
    calls: list[Call] = []
    for n in range(rng.choice([3, 8, 20, 40])):
        t = rng.choice(topics)
        row = values(rng, t.columns, KEYS[s.key], n)
        calls.append(Write(t.name, row, rng.randint(0, 60), rng.random() < 0.2, rng.randrange(t.partitions)))
    return calls


def filter_table(rng: random.Random) -> Question:
    s = setting(rng)
    t = topic(rng, "a", s.key, partitions=False)
    rel = replace(standing(table(t, s)), name="a")
    joined = Joined(items(rng, rel), None, "a", f"{rel.duck} a", "a._key")
    sql, duck = select(rng, joined, "TABLE", where=0.8, time="a._t")
    script = f"{declared([t], s)}INSERT INTO o {sql};"
    calls = table_history(rng, [t], s)
    return question([t], s, script, duck, joined.items, calls, stands=True)


def two_tables(rng: random.Random, left: Rel, right: Rel, kind: str, name: str) -> tuple[Rel, dict[str, E], str]:
    """left JOIN right on their whole keys: (what it is in DuckDB, its columns, the tail of the query)"""
    chosen = items(rng, left, right)
    a, b = left.name, right.name
    there = {"INNER": f"{a}h AND {b}h", "LEFT": f"{a}h", "RIGHT": f"{b}h", "OUTER": f"({a}h OR {b}h)"}[kind]
    # columns of a side that is gone are null; a side that is gone has had a time, which the last row may have taken on
    shown = ", ".join(
        f"CASE WHEN {x.name}h THEN {x.name}.{f} END AS {x.name}_{f}" for x in (left, right) for f in x.fields
    )
    sides = (
        f"SELECT COALESCE({a}._key, {b}._key) AS _key, {a}._gone IS NOT DISTINCT FROM false AS {a}h,"
        f" {b}._gone IS NOT DISTINCT FROM false AS {b}h, {shown}, CASE WHEN {a}h AND {b}h THEN"
        f" CASE WHEN {a}._t + {b}._t IS NOT NULL THEN greatest({a}._t, {b}._t) END"
        f" WHEN {a}h AND {b}._key IS NULL THEN {a}._t WHEN {b}h AND {a}._key IS NULL THEN {b}._t END AS _t"
        f" FROM {left.duck} {a} FULL JOIN {right.duck} {b} ON {a}._key = {b}._key"
    )
    made = ", ".join(f"{e.duck.replace(a + '.', a + '_').replace(b + '.', b + '_')} AS {n}" for n, e in chosen.items())
    duck = f"(SELECT _key, {made}, _t, NOT ({there}) AS _gone FROM ({sides}))"
    word = "JOIN" if kind == "INNER" else f"{kind} JOIN"
    said = rng.choice(["", f" ON {a}._key = {b}._key"])
    tail = f"{a} {word} {b}{said}"
    return Rel(name, left.key, {n: e.type for n, e in chosen.items()}, duck), chosen, tail


def join_tables(rng: random.Random, kind: str | None = None, joins: int = 1) -> Question:
    """Tables on their whole keys, one join or a chain."""
    s = setting(rng)
    topics = [topic(rng, name, s.key, partitions=False) for name in "abcd"[: joins + 1]]
    rels = [table(t, s) for t in topics]
    rels = [table_where(rng, r, t) if rng.random() < 0.2 else r for r, t in zip(rels, topics, strict=True)]
    made = "".join(r.statements for r in rels)
    step = 0
    while True:
        at = rng.randrange(len(rels) - 1)
        step += 1
        rel, chosen, tail = two_tables(rng, rels[at], rels[at + 1], kind or rng.choice(KINDS), f"w{step}")
        said = "SELECT TABLE " + ", ".join(f"{e.sql} AS {n}" for n, e in chosen.items()) + f" FROM {tail}"
        if rng.random() < 0.2:
            p = predicate(rng, list(chosen.values()), "lenses")
            names = {e.duck: n for n, e in chosen.items()}
            q = predicate_over(p.duck, names)
            if q is not None:
                said = f"{said} WHERE {p.sql}"
                rel = replace(rel, duck=f"(SELECT * REPLACE (_gone OR ({q}) IS NOT TRUE AS _gone) FROM {rel.duck})")
        if len(rels) == 2:
            break
        made += f"WITH {rel.name} AS ({said});\n"
        rels[at : at + 2] = [rel]
    script = f"{declared(topics, s)}{made}INSERT INTO o {said};"
    duck = f"SELECT _key, {', '.join(chosen)}, _t FROM {rel.duck} WHERE NOT _gone"
    calls = table_history(rng, topics, s)
    return question(topics, s, script, duck, chosen, calls, stands=True)


def predicate_over(duck: str, names: dict[str, str]) -> str | None:
    """A condition over the columns of a join as one over its result; None where it names what is not selected alone."""
    for expression, name in sorted(names.items(), key=lambda x: -len(x[0])):
        duck = duck.replace(expression, name)
    return None if "." in duck else duck


# ------------------------------------------------------------------ a stream and tables


def stream_table(rng: random.Random, left: Rel, right: Rel, kind: str) -> Joined:
    """The stream is `left`; RIGHT writes it on the right side."""
    first, second = (right, left) if kind == "RIGHT" else (left, right)
    said, condition, key, type = on(rng, first, second)
    word = "JOIN" if kind == "INNER" else f"{kind} JOIN"
    source = f"{first.name} {word} {second.name}{said}"
    duck = f"{first.duck} {first.name} {word} {second.duck} {second.name} ON {condition}"
    return Joined(items(rng, first, second), type, source, duck, key)


def look_up(rng: random.Random, kind: str | None = None, chained: bool = False) -> Question:
    """A stream (`chained`: or a windowed join, or one with another table) and a table that is there before it."""
    s = setting(rng)
    streams = [topic(rng, name, s.key) for name in ("ab" if chained else "a")]
    tables = [topic(rng, name, s.key, partitions=False) for name in ("uv" if chained else "u")]
    rel, made = leaf(streams[0], s), ""
    looked = []
    for t in tables:
        one = standing(table_where(rng, table(t, s), t) if rng.random() < 0.2 else table(t, s))
        made += one.statements
        looked.append(one)
    order: list[Rel] = [*looked, leaf(streams[1], s)] if chained else looked
    rng.shuffle(order)
    for step, other in enumerate(order, 1):
        if other.name.startswith("t"):
            how = kind or rng.choice(["INNER", "LEFT", "RIGHT"])
            joined, time = stream_table(rng, rel, other, how), f"{rel.name}._t"
        else:
            joined, time = windowed(rng, s, rel, other, rng.choice(KINDS)), f"greatest({rel.name}._t, {other.name}._t)"
        sql, duck = select(rng, joined, time=time)
        if step < len(order):
            rel = Rel(f"w{step}", joined.key, {n: e.type for n, e in joined.items.items()}, f"({duck})")
            made += f"WITH {rel.name} AS ({sql});\n"
    topics = [*streams, *tables]
    calls = [*table_history(rng, tables, s), *history(rng, streams, s)]
    script = f"{declared(topics, s)}{made}INSERT INTO o {sql};"
    return question(topics, s, script, duck, joined.items, calls)


# ------------------------------------------------------------------ groups


KEPT = {
    "MAXK": ("", "DESC"),
    "MINK": ("", "ASC"),
    "MAXK_UNIQUE": ("DISTINCT ", "DESC"),
    "MINK_UNIQUE": ("DISTINCT ", "ASC"),
}


def aggregates(rng: random.Random, columns: Sequence[E], keeps: bool = False) -> dict[str, E]:
    """`keeps`: of rows that stay, also some that keep values."""
    numbers = of_type(columns, "int", "long")
    chosen = {"c": same("COUNT(*)", "long")}
    if keeps and rng.random() < 0.6:
        f, n, k = rng.choice(list(KEPT)), rng.choice(numbers), rng.choice([1, 2, 3])
        distinct, order = KEPT[f]
        rows = f"list({distinct}{n.duck}) FILTER ({n.duck} IS NOT NULL)"
        chosen["k"] = E(f"{f}({n.sql}, {k})", f"COALESCE(list_sort({rows}, '{order}')[1:{k}], [])", "ints")
    for i in range(rng.choice([1, 2])):
        f, n = rng.choice(["COUNT", "SUM", "AVG"]), rng.choice(numbers)
        nothing = f in ("SUM", "AVG")  # of nothing they are 0
        chosen[f"a{i}"] = E(f"{f}({n.sql})", f"COALESCE({f}({n.duck}), 0)" if nothing else f"{f}({n.duck})", "long")
    return chosen


def rows_to_group(rng: random.Random, joined: bool) -> tuple[Setting, list[Topic], Rel, list[E]]:
    """A stream, or a windowed join, with its columns: some are whole numbers."""
    s = setting(rng)
    topics = [topic(rng, name, s.key) for name in ("ab" if joined else "a")]
    rel = leaf(topics[0], s)
    if joined:
        rel = named(rng, windowed(rng, s, rel, leaf(topics[1], s), rng.choice(KINDS)), "w", "")
    columns = [E(f, f"{rel.name}.{f}", type) for f, type in rel.fields.items()]
    return (s, topics, rel, columns) if of_type(columns, "int", "long") else rows_to_group(rng, joined)


def group_stream(rng: random.Random, joined: bool = False) -> Question:
    """GROUP BY over a stream, or over a windowed join."""
    s, topics, rel, columns = rows_to_group(rng, joined)
    made = rel.statements
    by = rng.choice(of_type(columns, "int", "long", "text"))
    chosen = aggregates(rng, columns, True)
    sql, duck = grouped(rng, rel, by, chosen, columns, "STREAM")
    script = f"{declared(topics, s)}{made}INSERT INTO o {sql};"
    calls = history(rng, topics, s)
    return question(topics, s, script, duck, chosen, calls, stands=True)


def in_windows(rng: random.Random, sessions: bool, joined: bool = False) -> Question:
    """GROUP BY in windows that take all rows, over a stream or over a windowed join."""
    s, topics, rel, columns = rows_to_group(rng, joined)
    by = rng.choice(of_type(columns, "int", "long", "text"))
    chosen = aggregates(rng, columns, True)
    where = predicate(rng, columns, "lenses") if rng.random() < 0.3 else None
    rows = f"SELECT *, {by.duck} AS _g FROM {rel.duck} {rel.name} WHERE {by.duck} IS NOT NULL"
    rows += f" AND {where.duck}" if where else ""
    if sessions:
        gap = rng.choice([1, 4, 30])
        window, order = f"SESSION {gap}ms", "(PARTITION BY _g ORDER BY _t)"
        begins = f"CASE WHEN _t - lag(_t) OVER w <= {gap} THEN 0 ELSE 1 END"
        rows = f"SELECT *, {begins} AS _begins FROM ({rows}) WINDOW w AS {order}"
        rows = f"SELECT *, sum(_begins) OVER {order} AS _in FROM ({rows})"
        start, end = "min(_t)", "max(_t)"
    else:
        size = rng.choice([1, 7, 30])
        step = size if rng.random() < 0.5 else rng.randint((size + 3) // 4, size)
        window = f"TUMBLE {size}ms" if step == size else f"HOP {size}ms,{step}ms"
        begins = f"generate_series(_t - _t % {step} - {size // step * step}, _t, {step})"
        rows = f"SELECT * FROM (SELECT *, unnest({begins}) AS _in FROM ({rows}))"
        rows += f" WHERE _in >= 0 AND _t >= _in AND _t < _in + {size}"
        start, end = "_in", f"_in + {size}"
    grace = rng.choice(["", " GRACE BY 1h"])
    sql = (
        f"INSERT INTO o SELECT STREAM {', '.join(f'{e.sql} AS {n}' for n, e in chosen.items())} FROM {rel.name}"
        f"{f' WHERE {where.sql}' if where else ''} WINDOW BY {window}{grace} GROUP BY {by.sql};"
    )
    duck = (
        f"SELECT _g AS _key, {start} AS _start, {end} AS _end"
        f", {', '.join(f'{e.duck} AS {n}' for n, e in chosen.items())}, max(_t) AS _t"
        f" FROM ({rows}) {rel.name} GROUP BY _g, _in"
    )
    script = f"{declared(topics, s)}{rel.statements}{sql}"
    calls = history(rng, topics, s)
    return question(topics, s, script, duck, ("_start", "_end", *chosen), calls, stands=True)


def grouped(
    rng: random.Random, rel: Rel, by: E, chosen: dict[str, E], columns: Sequence[E], word: str
) -> tuple[str, str]:
    sql = ", ".join(f"{e.sql} AS {n}" for n, e in chosen.items())
    duck = ", ".join(f"{e.duck} AS {n}" for n, e in chosen.items())
    where = predicate(rng, columns, "lenses") if rng.random() < 0.3 else None
    time = "max(_t)" if word == "STREAM" else "NULL"
    return (
        f"SELECT {word} {sql} FROM {rel.name}{f' WHERE {where.sql}' if where else ''} GROUP BY {by.sql}",
        f"SELECT {by.duck} AS _key, {duck}, {time} AS _t FROM {rel.duck} {rel.name}"
        f" WHERE {by.duck} IS NOT NULL{f' AND {where.duck}' if where else ''} GROUP BY {by.duck}",
    )


def group_table(rng: random.Random, joined: bool = False) -> Question:
    """GROUP BY over a table, or over tables joined on any field; groups that have lost all rows are left out."""
    s = setting(rng)
    topics = [topic(rng, name, s.key, partitions=False) for name in ("ab" if joined else "a")]
    rels = [standing(table(t, s)) for t in topics]
    made = "".join(r.statements for r in rels)
    rel = rels[0]
    if joined:
        kind = rng.choice(KINDS)
        said, condition, key, type = on(rng, *rels)
        word = f"{kind} JOIN"
        pair = Joined(
            items(rng, *rels),
            type,
            f"{rels[0].name} {word} {rels[1].name}{said}",
            f"{rels[0].duck} {rels[0].name} {DUCK_KIND[kind]} JOIN {rels[1].duck} {rels[1].name} ON {condition}",
            key,
        )
        rel = named(rng, pair, "w", "", "TABLE")
        made += rel.statements
    columns = [E(f, f"{rel.name}.{f}", type) for f, type in rel.fields.items()]
    if not of_type(columns, "int", "long"):
        return group_table(rng, joined)
    by = rng.choice(of_type(columns, "int", "long", "text"))
    chosen = aggregates(rng, columns)
    sql, duck = grouped(rng, rel, by, chosen, columns, "TABLE")
    script = f"{declared(topics, s)}{made}WITH g AS ({sql});\nINSERT INTO o SELECT TABLE * FROM g WHERE c > 0;"
    calls = table_history(rng, topics, s)
    return question(topics, s, script, duck, chosen, calls, stands=True)


SHAPES |= {
    "lenses filter": filter_stream,
    "lenses lateral": lateral,
    "lenses table filter": filter_table,
    **{f"lenses tables {kind}": partial(join_tables, kind=kind) for kind in KINDS},
    "lenses tables chain": partial(join_tables, joins=3),
    **{f"lenses stream-table {kind}": partial(look_up, kind=kind) for kind in ("INNER", "LEFT", "RIGHT")},
    "lenses streams and tables": partial(look_up, chained=True),
    "lenses group": group_stream,
    "lenses windowed group": partial(group_stream, joined=True),
    "lenses windows": partial(in_windows, sessions=False),
    "lenses sessions": partial(in_windows, sessions=True),
    "lenses windows of a join": partial(in_windows, sessions=False, joined=True),
    "lenses sessions of a join": partial(in_windows, sessions=True, joined=True),
    "lenses table group": group_table,
    "lenses tables group": partial(group_table, joined=True),
}
