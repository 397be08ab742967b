"""Binding: SQL to logical plans, and every refusal with its place and hint.

The cases are pages in `cases/bind/`: a ```sql block and the ```result it gives, after what ```setup blocks of the same
section declare. `BRAID_ACCEPT=1 pytest tests/test_bind.py` writes the results; read the diff before it is kept.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from braid.bind import bound
from braid.bind.catalog import Catalog
from braid.bind.commands import bind
from braid.bind.ksqldb.bind import DIALECT
from braid.bind.settings import Settings
from braid.errors import SqlError
from braid.expr.show import show
from braid.plan import groups, joins, logical
from braid.plan.canonical import canonical
from braid.plan.logical import Query
from braid.records.encoding import Encoding
from braid.sql.parser import parse

CASES = Path(__file__).parent / "cases" / "bind"
BLOCK = re.compile(r"^```(setup|sql|result)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)

NO_RESULT = re.compile(r"(^```sql\n(?:(?!^```).*\n)*^```\n)(?!```result)", re.MULTILINE)


def run(text: str, catalog: Catalog, settings: Settings) -> tuple[str, Catalog, Settings]:
    """The statements of `text`, one after the other; what each gives, as text."""
    shown: list[str] = []
    try:
        for statement in parse(text, DIALECT.words).statements:
            made = bind(statement, catalog, settings, text, DIALECT)
            catalog = catalog.apply(made)
            if isinstance(made, bound.SettingChanged):
                settings = made.settings
            shown.append(described(made))
    except SqlError as error:
        shown.append(error.render())
    return "\n".join(s for s in shown if s), catalog, settings


def described(made: bound.Bound) -> str:
    match made:
        case bound.QueryBound(query=query, declared=declared):
            return plan_text(query) + ("" if declared is None else f"\ndeclared: {columns(declared)}")
        case bound.SourceDeclared(declared=d, notices=notices):
            notes = "".join(f"\nnotice: {n}" for n in notices)
            return f"{d.kind} {d.name}, topic {d.topic}, {d.encoding}: {columns(d)}{notes}"
        case bound.Explained(name=name, query=query):
            return f"explain {name}" + ("" if query is None else f"\n{plan_text(query)}")
        case bound.Described(header=header, rows=rows) | bound.Shown(header=header, rows=rows):
            return "\n".join(" | ".join(map(str, row)) for row in (header, *rows))
        case bound.Inserted(topic=topic, rows=rows):
            return "\n".join(f"{topic}: {r.key} {r.value} @{r.timestamp}" for r in rows)
        case bound.SettingChanged(settings=settings, notices=notices):
            return "\n".join([str(settings), *(f"notice: {n}" for n in notices)])
        case bound.Dropped(names=names, topics=topics, queries=queries):
            return f"drop {names} topics={topics} stops={queries}"
        case bound.Nothing(notices=notices):
            return "\n".join(notices)


def plan_text(query: Query) -> str:
    """The sink, then the nodes below it, a line each, then the notices."""
    s = query.sink
    lines = [f"{query.name} -> {s.kind} {s.name}, topic {s.topic}, {encoding_text(s.encoding)}"]
    lines += [f"  key    {output_text(o)}" for o in s.key]
    if not s.key:
        lines.append(f"  key    {', '.join(map(show, s.record_key)) or 'none'} (no column)")
    lines += [f"  value  {output_text(o)}" for o in s.values]
    if s.partitions is not None:
        lines.append(f"  partitions {s.partitions}")
    if s.timestamp is not None:
        lines.append(f"  time from {s.timestamp.field}" + (f" as {s.timestamp.format}" if s.timestamp.format else ""))
    if s.limit is not None:
        lines.append(f"  limit {s.limit}")
    return "\n".join([*lines, *node_lines(query.root, "  "), *(f"notice: {n}" for n in query.notices)])


def output_text(o: logical.Output) -> str:
    return f"{o.name} {o.expr.type} = {show(o.expr)}"


def encoding_text(e: Encoding) -> str:
    delimiter = f" by {e.delimiter!r}" if e.value == "DELIMITED" and e.delimiter != "," else ""
    return f"{e.key}/{e.value}{delimiter}{'' if e.wrapped else ' bare'}"


def node_lines(node: logical.Node, indent: str) -> Iterator[str]:
    yield indent + node_line(node)
    for x in node.inputs:
        yield from node_lines(x, indent + "  ")


def node_line(node: logical.Node) -> str:
    match node:
        case logical.Source():
            return source_line(node)
        case logical.Filter(predicate=p):
            return f"filter {show(p)}"
        case groups.Aggregate(keys=keys, aggregations=aggregations):
            by = ", ".join(f"{c.name} = {show(e)}" for c, e in keys)
            made = (
                f"{a.output.name} {a.output.type} = {a.function}({'*' if a.arg is None else show(a.arg)})"
                for a in aggregations
            )
            return f"aggregate by {by}: {', '.join(made)}"
        case joins.OnKeys():
            on = f"{node.keys[0].name} {node.keys[0].type}: {show(node.left_keys[0])} = {show(node.right_keys[0])}"
            return f"{node.joins} {node.how} {on}{policy_text(node)}"
    raise AssertionError(f"no plan of ksqldb has a {node.called}")


def policy_text(node: joins.OnKeys) -> str:
    match node:
        case joins.StreamStreamJoin():
            grace = "eager" if node.pad == "eager" else f"grace {node.grace}"
            within = f" within -{node.before}..+{node.after} {grace}, retention {node.retention}"
            return f"{within}, null key {node.null_key}, late {node.late}"
        case joins.StreamTableJoin():
            return f", null key {node.null_key}"
    return ""


def source_line(s: logical.Source) -> str:
    shown = (f"{c.column.name} {c.column.type}{'' if c.place == 'value' else ' ' + c.place}" for c in s.columns)
    parts = [f"{s.kind} {s.name} as {s.alias}, topic {s.topic}, {encoding_text(s.encoding)} ({', '.join(shown)})"]
    parts += [f"message key {s.message_key}"] if s.message_key is not None else []
    parts += [f"time from {s.timestamp.field}"] if s.timestamp is not None else []
    parts += [f"partitions {s.partitions}"] if s.partitions is not None else []
    return ", ".join(parts)


def columns(d: bound.Declared) -> str:
    shown = [f"{c.name} {c.type} {c.place}{' hidden' if c.hidden else ''}" for c in d.columns]
    extra = [f"message key {d.message_key}"] if d.message_key else []
    extra += [f"time {d.timestamp.field}"] if d.timestamp else []
    extra += [f"partitions {d.partitions}"] if d.partitions else []
    return ", ".join(shown + extra)


def sections(page: str) -> list[tuple[str, str]]:
    parts = re.split(r"^# (.*)\n", page, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def play(body: str) -> str:
    """The section with the results that the code gives."""
    catalog, settings, last = Catalog(), Settings(), ""

    def one(m: re.Match[str]) -> str:
        nonlocal catalog, settings, last
        kind, text = m[1], m[2]
        if kind == "setup":
            shown, catalog, settings = run(text, catalog, settings)
            assert "error:" not in shown, shown
        elif kind == "sql":
            last, _, _ = run(text, catalog, settings)
        else:
            return f"```result\n{last}\n```\n"
        return m[0]

    return BLOCK.sub(one, body)


PAGES = sorted(CASES.glob("*.md"))
SECTIONS = [
    pytest.param(body, id=f"{page.stem}: {title}") for page in PAGES for title, body in sections(page.read_text())
]


@pytest.mark.skipif("BRAID_ACCEPT" in os.environ, reason="results are being written")
@pytest.mark.parametrize("body", SECTIONS)
def test_case(body: str) -> None:
    assert play(body) == body


@pytest.mark.skipif("BRAID_ACCEPT" not in os.environ, reason="writes results on demand only")
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_accept(page: Path) -> None:
    text = page.read_text()
    for _, body in sections(text):
        text = text.replace(body, play(NO_RESULT.sub(r"\1```result\n```\n", body)))
    page.write_text(text)


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem.startswith("refused")], ids=lambda p: p.stem)
def test_every_refusal_has_place_caret_and_hint(page: Path) -> None:
    results = [m[2] for m in BLOCK.finditer(page.read_text()) if m[1] == "result"]
    assert results
    for result in results:
        assert re.search(r"^error: .+\n  at line \d+, column \d+\n.*\n +\^+\n  hint: .+", result, re.MULTILINE), result


# ------------------------------------------------------------------ direct

LR = (
    "CREATE STREAM l (k INT KEY, v VARCHAR) WITH (kafka_topic='l', value_format='JSON');"
    "CREATE STREAM r (k INT KEY, v VARCHAR) WITH (kafka_topic='r', value_format='JSON');"
    "CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR) WITH (kafka_topic='t', value_format='JSON');"
)


def bound_of(sql: str, before: str = LR) -> bound.Bound:
    catalog, settings = Catalog(), Settings()
    text = before + sql
    made: bound.Bound | None = None
    for statement in parse(text, DIALECT.words).statements:
        made = bind(statement, catalog, settings, text, DIALECT)
        catalog = catalog.apply(made)
        settings = made.settings if isinstance(made, bound.SettingChanged) else settings
    assert made is not None
    return made


def query_of(sql: str, before: str = LR) -> Query:
    made = bound_of(sql, before)
    assert isinstance(made, bound.QueryBound)
    return made.query


def test_the_canonical_text_ignores_spelling_and_other_statements() -> None:
    one = query_of("CREATE STREAM o AS SELECT l.k AS k, r.v AS rv FROM l JOIN r WITHIN 1 HOUR ON l.k = r.k;")
    two = query_of(
        "/* why */ create stream O as\n select l.K as k, r.v as RV -- a comment\n from L join r within 60 minutes"
        " on l.k = r.k emit changes;",
        LR + "CREATE STREAM x AS SELECT * FROM l;",
    )
    assert one.sql != two.sql
    assert canonical(one) == canonical(two)


@pytest.mark.parametrize(
    "other",
    [
        "CREATE STREAM o AS SELECT l.k AS k, r.v AS rv FROM l JOIN r WITHIN 2 HOURS ON l.k = r.k;",
        "CREATE STREAM o AS SELECT l.k AS k, r.v AS rv FROM l LEFT JOIN r WITHIN 1 HOUR ON l.k = r.k;",
        "CREATE STREAM o AS SELECT l.k AS k, r.v AS rx FROM l JOIN r WITHIN 1 HOUR ON l.k = r.k;",
        "SET 'braid.null.key'='pad';"
        "CREATE STREAM o AS SELECT l.k AS k, r.v AS rv FROM l JOIN r WITHIN 1 HOUR ON l.k = r.k;",
    ],
)
def test_the_canonical_text_shows_every_change_of_meaning(other: str) -> None:
    one = query_of("CREATE STREAM o AS SELECT l.k AS k, r.v AS rv FROM l JOIN r WITHIN 1 HOUR ON l.k = r.k;")
    assert canonical(one) != canonical(query_of(other))


def test_bind_changes_no_catalog() -> None:
    catalog = Catalog()
    text = "CREATE STREAM l (k INT KEY, v VARCHAR) WITH (kafka_topic='l', value_format='JSON');"
    made = bind(parse(text, DIALECT.words).statements[0], catalog, Settings(), text, DIALECT)
    assert catalog.sources == {}
    assert list(catalog.apply(made).sources) == ["L"]


def test_inserts_are_numbered_per_sink() -> None:
    before = LR + "CREATE STREAM o AS SELECT * FROM l; INSERT INTO o SELECT * FROM r;"
    assert query_of("INSERT INTO o SELECT * FROM r WHERE k > 1;", before).name == "O.2"


def test_the_next_step_joins_on_the_key_column_of_the_one_before() -> None:
    q = query_of(
        "CREATE STREAM o AS SELECT l.k, l.v, r.v, t.v FROM l LEFT JOIN r WITHIN 1 HOUR ON l.k = r.k"
        " JOIN t ON r.k = t.k;"
    )
    assert isinstance(q.root, joins.StreamTableJoin)
    assert q.root.left_keys == (logical.Col(".KEY1", q.root.left_keys[0].type),)
    assert q.root.keys[0].name == ".KEY2"
    assert q.sink.written_key == (q.root.keys[0],)


def test_every_field_of_a_plan_has_a_canonical_form() -> None:
    q = query_of("CREATE TABLE o AS SELECT k, COUNT(*) AS c FROM l WHERE v <> 'x' GROUP BY k HAVING COUNT(*) > 1;")
    for field in dataclasses.fields(q):
        if field.name not in ("sql", "notices") and getattr(q, field.name) != field.default:
            assert field.name in canonical(q)
    assert "snapshot" in canonical(dataclasses.replace(q, snapshot=True))


def test_long_lists_stay_shallow() -> None:
    items = ", ".join(map(str, range(3000)))
    q = query_of(f"CREATE STREAM o AS SELECT k, v FROM l WHERE k IN ({items});")
    assert canonical(q)
