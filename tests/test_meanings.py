"""A changed value is a changed query: its checkpoint is refused by name, with what has changed; all others go on.

Rule: a row of functions whose meaning is raised stands for one that a new version has changed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from braid.bind.program import Program
from braid.errors import BraidError
from braid.expr import meanings
from braid.expr.aggregates import AGGREGATES
from braid.expr.functions import FUNCTIONS
from braid.expr.meanings import MEANING, VERSIONS
from braid.expr.nodes import Call
from braid.plan.canonical import canonical, changed_expressions, wording
from braid.plan.logical import Query
from braid.stage import checkpoint
from braid.stage.checkpoint import NAME, Document, check_plan, load, open_or_create
from braid.store import opened
from braid.types import Decimal
from cli_help import braid
from sums import loaded, with_sum

SQL = """
CREATE STREAM s (k INT KEY, a INT, b INT, p DECIMAL(9, 2), d DOUBLE, xs ARRAY<DOUBLE>)
  WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM plain AS SELECT k, a + b AS c FROM s WHERE a > 0;
CREATE STREAM divided AS SELECT k, 1 + a / b AS c FROM s WHERE a / b > 0;
CREATE STREAM of_decimals AS SELECT k, p / 3 AS c FROM s;
CREATE STREAM casts AS SELECT k, CAST(d AS INT) AS c, CAST(xs AS ARRAY<INT>) AS e FROM s;
CREATE TABLE grouped AS SELECT a, MAX(b) AS m, MAX(b) + 1 AS n, COUNT(*) AS c FROM s GROUP BY a HAVING MAX(b) > 0;
CREATE STREAM folded AS SELECT k, REDUCE(xs, 0e0, (s, x) => s + x) AS c FROM s;
"""


def queries(sql: str = SQL) -> dict[str, Query]:
    return {e.query.name: e.query for e in Program("ksqldb").statements(sql) if e.query is not None}


OLD = queries()
TEXTS = {name: canonical(q) for name, q in OLD.items()}


def raised(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A version in which something has changed."""
    match what.split():
        case ["cast", source, target]:
            monkeypatch.setattr(meanings, "CASTS", {(source, target): MEANING})
        case ["lambda", name]:
            monkeypatch.setattr(meanings, "CALLS", {name: MEANING})
        case ["aggregate", name]:
            monkeypatch.setitem(AGGREGATES, name, replace(AGGREGATES[name], meaning=MEANING))
        case [name]:
            monkeypatch.setitem(FUNCTIONS, name, replace(FUNCTIONS[name], meaning=MEANING))


def made(folder: Path, name: str, meaning: int = 2) -> Path:
    """A checkpoint as a version wrote it."""
    document = Document(
        name,
        TEXTS[name],
        wording(OLD[name]),
        {"dialect": "ksqldb", "sink": "topic"},
        1,
        1,
        1,
        (0,),
        (("s", 0),),
        "4.2.1",
    )
    open_or_create(opened(folder / name), document)
    x = loaded(folder / name / NAME)
    assert x["meaning"] == MEANING
    x["meaning"] = meaning
    (folder / name / NAME).write_bytes(with_sum(x))
    return folder / name


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("div", {"DIVIDED": ["(S.A / S.B) > 0", "1 + (S.A / S.B)"], "OF_DECIMALS": ["S.P / 3"]}),
        ("cast DOUBLE INT", {"CASTS": ["CAST(S.D AS INTEGER)", "CAST(S.XS AS ARRAY<INTEGER>)"]}),
        ("cast ARRAY ARRAY", {"CASTS": ["CAST(S.XS AS ARRAY<INTEGER>)"]}),
        ("aggregate MAX", {"GROUPED": ["MAX(S.B)"]}),
        ("lambda REDUCE", {"FOLDED": ["REDUCE(S.XS, 0.0, (S, X) => (S + X))"]}),
        ("mod", {}),
    ],
)
def test_it_is_refused_by_name_and_others_go_on(
    what: str, changed: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised(monkeypatch, what)
    for name, query in queries().items():
        folder = made(tmp_path, name)
        before = (folder / NAME).read_bytes()
        if name not in changed:
            assert check_plan(opened(folder), query, "topic") == load(opened(folder))
        else:
            with pytest.raises(BraidError) as e:
                check_plan(opened(folder), query, "topic")
            assert f"the query {name} gives other values than 0.2.0.dev0" in e.value.message
            assert [x.partition(": ")[2] for x in e.value.details] == changed[name]
            assert e.value.hint is not None and f"braid reset {name} lets it begin again" in e.value.hint
        assert (folder / NAME).read_bytes() == before


def test_a_row_may_have_changed_for_some_types(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_decimals(call: Call) -> int:
        return MEANING if isinstance(call.type, Decimal) else 1

    monkeypatch.setitem(FUNCTIONS, "div", replace(FUNCTIONS["div"], meaning=of_decimals))
    assert {name for name, q in queries().items() if canonical(q) != TEXTS[name]} == {"OF_DECIMALS"}


def test_one_of_this_version_is_another_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a checkpoint of another meaning is refused because of it."""
    folder = made(tmp_path, "DIVIDED", MEANING)
    raised(monkeypatch, "div")
    with pytest.raises(BraidError, match="was made by another query"):
        check_plan(opened(folder), queries()["DIVIDED"], "topic")


def test_one_of_a_newer_version(tmp_path: Path) -> None:
    folder = made(tmp_path, "DIVIDED", MEANING + 1)
    assert check_plan(opened(folder), OLD["DIVIDED"], "topic") is not None
    changed = queries(SQL.replace("1 + a / b", "2 + a / b"))["DIVIDED"]
    with pytest.raises(BraidError) as e:
        check_plan(opened(folder), changed, "topic")
    assert any("values are those of: a newer version in the checkpoint" in x for x in e.value.details)


def test_a_query_in_other_words_is_shown_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its author has changed stands there, and that the version has changed, too."""
    folder = made(tmp_path, "DIVIDED")
    raised(monkeypatch, "div")
    with pytest.raises(BraidError, match="was made by another query") as e:
        check_plan(opened(folder), queries(SQL.replace("1 + a / b", "2 + a / b"))["DIVIDED"], "topic")
    assert "  values are those of: 0.2.0.dev0 in the checkpoint, 0.2.0 now" in e.value.details
    assert any(x.startswith("  +") and "2 + a / b" in x for x in e.value.details)


@pytest.mark.parametrize(
    ("condition", "marked"),
    [("s ~ '^a'", True), ("s SIMILAR TO 'a%'", True), ("s LIKE 'a%'", False), ("regexp_count(s, 'a') = 1", True)],
)
def test_patterns_of_risingwave_have_the_number_3(condition: str, marked: bool) -> None:
    """They were PostgreSQL's before."""
    declared = "CREATE TABLE t (k INT PRIMARY KEY, s VARCHAR);"
    sql = f"{declared} CREATE MATERIALIZED VIEW v AS SELECT k FROM t WHERE {condition};"
    (query,) = (e.query for e in Program("risingwave").statements(sql) if e.query is not None)
    assert ('"meaning":3' in canonical(query)) is marked


def test_what_is_no_expression_is_another_query() -> None:
    query = queries(SQL.replace("GROUP BY a HAVING", "WINDOW TUMBLING (SIZE 1 SECONDS) GROUP BY a HAVING"))["GROUPED"]
    assert changed_expressions(TEXTS["GROUPED"], query) is None


def test_what_takes_the_place_of_an_old_one_is_of_this_version(tmp_path: Path) -> None:
    from braid.lower.lower import lower

    folder = made(tmp_path, "PLAIN")
    more = queries(SQL.replace("a + b AS c FROM", "a + b AS c, a / b AS e FROM"))["PLAIN"]
    checkpoint.upgrade(opened(folder), lower(OLD["PLAIN"]), lower(more))
    found = load(opened(folder))
    assert found is not None and found.meaning == MEANING and found.plan == canonical(more)


def test_each_number_has_a_version() -> None:
    """And no row is of a number that there is not yet."""
    assert sorted(VERSIONS) == list(range(2, MEANING + 1))
    numbers = [f.meaning for f in (*FUNCTIONS.values(), *AGGREGATES.values()) if isinstance(f.meaning, int)]
    assert all(1 <= n <= MEANING for n in (*numbers, *meanings.CASTS.values(), *meanings.CALLS.values()))
    assert meanings.CALLS.keys().isdisjoint(FUNCTIONS)


def test_all_that_are_refused_are_told_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started; a reset of one leaves the others."""
    (folder / "q.sql").write_text("-- dialect: ksqldb\n" + SQL, encoding="utf-8")
    for name in OLD:
        made(folder / "s" / "checkpoints", name)
    raised(monkeypatch, "div")
    said = braid("run", "q.sql", "--store", "s", "--until-idle")
    assert said.code == 1 and "2 queries give other values than 0.2.0.dev0" in said.err
    assert "DIVIDED: another value in 0.2.0: 1 + (S.A / S.B)" in said.err
    assert "OF_DECIMALS: another value in 0.2.0: S.P / 3" in said.err
    assert braid("reset", "OF_DECIMALS", "--store", "s").code == 0
    said = braid("run", "q.sql", "--store", "s", "--until-idle")
    assert said.code == 1 and "the query DIVIDED gives other values than 0.2.0.dev0" in said.err
    assert "braid reset DIVIDED lets it begin again" in said.err
