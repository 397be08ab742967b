"""Checkpoints of earlier versions: every operator in every dialect goes on as if it had never stopped, or its query is
refused by name.

In: stores that a version has written (`tests/checkpoints`, made by `tests/old_queries.py`, which says how), and what
comes later. Rule: what is in a topic at the end is what the oracle gives of all input; no query is refused that is not
named here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from braid.bind.program import Program
from braid.expr.loading import of_text
from braid.lower.lower import lower
from braid.plan.logical import Query
from braid.testing.driver import Driver
from braid.topics import TopicStore, parse_envelope
from cli_help import braid, on_shared_spark
from old_queries import MADE, OLD, Old
from test_old_checkpoints import store

# Operators of 0.1.0, but for Limit, which only push queries have.
OPERATORS = {
    "Answers", "AsOf", "Coalesce", "EmitOnClose", "Filter", "Final", "GroupBy", "InWindows", "Lateral", "LookUp",
    "OnTime", "Project", "Regular", "Retract", "Sessions", "Sliding", "TableFilter", "TableJoin", "Temporal",
    "TimeWindows", "Upserts", "WindowedJoin", "Windows",
}  # fmt: skip
# Queries, by store, in which an expression has another value than then.
REFUSED: Mapping[str, frozenset[str]] = {
    "0.1.0-sqlstream": frozenset({"FILTERED"}),  # l.v + 1 does not wrap
    # 'x' || NULL is NULL, t + 1 does not wrap; MIN and MAX over rows that change assume no end of a type
    "0.1.0-risingwave": frozenset({"valued", "grouped"}),
}
STORES = {old.name: old for old in OLD}
Row = tuple[object, ...]


def queries(old: Old) -> Iterable[Query]:
    program = Program(old.dialect)
    if old.functions:
        program.catalog = replace(program.catalog, functions=of_text(old.functions, "functions.py"))
    for effect in program.statements(old.sql):
        program.apply(effect)
    return program.queries.values()


def test_each_operator_is_among_them() -> None:
    plans = [lower(q, apart=True) for old in OLD for q in queries(old)]
    assert {type(s.operator).__name__ for p in plans for stage in p.stages for s in stage.steps} == OPERATORS


@pytest.mark.parametrize("name", STORES)
def test_stores_are_small(name: str) -> None:
    assert (MADE / f"{name}.tar.gz").stat().st_size < 100_000


def row(key: str | None, value: str | None, time: int, window: object, old: Old) -> Row:
    """What is compared: in tables, whose times are those of statements, all but times and the hidden keys of rows."""
    if old.dialect != "risingwave":
        return key, value, time, window
    told = {} if key is None else json.loads(key)
    if isinstance(told, dict):
        told = {n: v for n, v in told.items() if not n.endswith("._row_id")}
    return told, value


def unbroken(old: Old, folder: Path) -> dict[str, list[Row]]:
    """What the oracle gives of all input, by query."""
    functions = str(folder / "functions.py") if old.functions else None
    with Driver(old.dialect, "reference", functions=functions) as driver:
        driver.execute(old.sql)
        for statements, records in (old.early, old.later):
            driver.execute(statements)
            for topic, time, key, value, *window in records:
                driver.write(topic, key=key, value=value, timestamp=time, window=window[0] if window else None)
        driver._backend.pump()
        found = dict[str, list[Row]]()
        for q in driver._program.queries.values():
            placed = sorted(driver._backend.records(q.sink.topic, 0), key=lambda p: (p.partition, p.seq, p.hops, p.n))
            found[q.name] = [row(p.key, p.value, p.timestamp, p.window, old) for p in placed]
        return found


def written(topic: str, old: Old, folder: Path) -> list[Row]:
    """The records of a topic, partition by partition."""
    topics, found = TopicStore(folder / "store"), list[Row]()
    for p, end in enumerate(topics.end_offsets(topic)):
        lines = parse_envelope(topics.read(topic, p, 0, end)["_line"]).select("_key", "_value", "_t", "_window")
        found += [row(k, v, t, None if w is None else (w["start"], w["end"]), old) for k, v, t, w in lines.rows()]
    return found


def without(old: Old, names: Iterable[str]) -> Old:
    """The same without some queries, whose names stand behind VIEW, TABLE, STREAM or INTO."""
    made = [re.compile(rf"(?i)\b(VIEW|TABLE|STREAM|INTO) {name.partition('.')[0]}\s+(AS|SELECT)\b") for name in names]
    return replace(old, sql=";".join(x for x in old.sql.split(";") if not any(m.search(x) for m in made)))


@pytest.mark.spark
@pytest.mark.parametrize("rescaled", [False, pytest.param(True, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("name", STORES)
def test_it_goes_on_or_is_refused_by_name(name: str, rescaled: bool, tmp_path: Path) -> None:
    """`rescaled`: it goes on in other buckets and tasks."""
    pytest.importorskip("pyspark")
    store(name, tmp_path)
    old, refused = STORES[name], REFUSED.get(name, frozenset())
    old.write(tmp_path, *old.later)
    want = unbroken(old, tmp_path)
    topics = {q.name: q.sink.topic for q in queries(old)}
    if refused:
        said = on_shared_spark(*old.command(), cwd=tmp_path)
        assert said.code == 1 and "another value in" in said.err, said.err
        assert all(re.search(rf"\b{query}\b", said.err) for query in refused), said.err
    kept = without(old, refused)
    kept.write(tmp_path, old.later[0], [])
    for query in sorted(want.keys() - refused) if rescaled else ():
        outputs = TopicStore(tmp_path / "store").partitions(topics[query])
        assert braid("rescale", query, "--buckets", 6 * outputs, "--tasks", 3, "--store", tmp_path / "store").code == 0
    said = on_shared_spark(*old.command(), cwd=tmp_path)
    assert said.code == 0, said.err
    for query in sorted(want.keys() - refused):
        assert written(topics[query], old, tmp_path) == want[query], query


@pytest.mark.parametrize("name", ["0.1.0-risingwave", "0.1.0-sqlstream"])
def test_statements_that_were_done_are_not_done_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file is run again: its INSERTs are known by their names, which an earlier version has made."""
    monkeypatch.chdir(tmp_path)
    store(name, tmp_path)
    old = STORES[name]
    tables = ";".join(x for x in (old.sql + old.early[0]).split(";") if " AS SELECT " not in x)
    replace(old, sql="").write(tmp_path, tables, [])
    topics = TopicStore(tmp_path / "store")
    before = {t: topics.end_offsets(t) for t in topics.names()}
    said = braid(*[x for x in old.command() if x != "--quiet"])
    assert said.code == 0 and said.err.count("was done before; skipped") == tables.count("INSERT INTO"), said.err
    assert {t: topics.end_offsets(t) for t in topics.names()} == before
