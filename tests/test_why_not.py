"""Why and why-not on stores that real runs have written: what is read again, in its order, gives the rows that are
there, and each of these has a derivation.

In: queries with every operator in every dialect (`every_operator.py`), run on Spark in two goes.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import effort
import every_operator
from braid.expr.loading import of_files
from braid.face.cli import main
from braid.plan.epochs import in_epochs
from braid.reference import OutRecord, Reference
from braid.store import opened
from braid.testing.oracle import key_text, value_text
from braid.topics.store import TopicStore
from braid.topics.store_value import Store
from braid.why.asking import MOST, Asked, Input, asked
from braid.why.deriving import Deriving, Writers, why
from braid.why.reading import events
from braid.why.tree import Tree
from braid.why.tree_words import Row
from braid.why.what_if import NO_ROW
from braid.why.words import document
from cli_help import braid, on_shared_spark
from effort import some
from every_operator import Queries

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", params=every_operator.ALL, ids=lambda of: of.dialect)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Queries, Path]:
    """A store in which the queries of a dialect have run twice."""
    of, folder = request.param, tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for statements, records in (of.early, of.later):
            of.write(folder, statements, records)
            with pytest.raises(SystemExit) as end:
                main(of.command())
            assert end.value.code == 0
    return of, folder


def opened_query(of: Queries, folder: Path, name: str) -> Asked:
    functions = of_files([str(folder / "functions.py")] if of.functions else [])
    file = (of.sql, of.dialect) if of.dialect == "lenses" else None  # its WITH is a statement of its own
    return asked(Store(opened(folder / "store")), name, functions, file=file)


def given(mine: Asked) -> list[OutRecord]:
    """What the definitions give of all that it has read."""
    return Reference(mine.plan.query).process(events(mine.heard, mine.plan, mine.every()))


def test_what_was_read_gives_the_rows_that_are_there(ran: tuple[Queries, Path]) -> None:
    of, folder = ran
    for query in every_operator.queries(of):
        mine = opened_query(of, folder, query.name)
        sink = mine.plan.query.sink
        made = [
            every_operator.row(key_text(sink, r.key), value_text(sink, r), r.time, r.window, of) for r in given(mine)
        ]
        there = every_operator.written(sink.topic, of, folder)
        others = [q for q in every_operator.queries(of) if q.sink.topic == sink.topic]
        if len(others) == 1:
            assert Counter(map(repr, made)) == Counter(map(repr, there)), query.name


def test_each_record_has_a_verdict_and_those_that_gave_rows_are_the_causes(ran: tuple[Queries, Path]) -> None:
    of, folder = ran
    for query in some(every_operator.queries(of)):
        mine = opened_query(of, folder, query.name)
        answer = mine.of_time(-(2**60), None)
        assert answer.records or not any(x.height for x in mine.heard.rows.values()), query.name
        assert not [x for x in answer.records if x.verdict.reason == "nothing said"], query.name
        if not in_epochs(mine.plan.query.root):
            assert any(x.verdict.outcome == "given" for x in answer.records) == bool(given(mine)), query.name
        for x in answer.records[:5]:
            one = mine.of_input(Input(x.at.topic, x.at.partition, x.at.offset))
            assert x.verdict.reason in [y.verdict.reason for y in one.records], (query.name, x)


def test_records_that_gave_no_row_are_asked_what_would_have_made_one(ran: tuple[Queries, Path]) -> None:
    """That it does is the law: `test_what_if.py`."""
    of, folder = ran
    kinds = set[str]()
    for query in some(every_operator.queries(of)):
        mine = opened_query(of, folder, query.name)
        missing = [x for x in mine.of_time(-(2**60), None).records if x.verdict.outcome == "missing"]
        assert not [x for x in missing if x.what_if is not None]
        mine.seconds = 30
        for x in missing[:: max(len(missing) // 4, 1)]:
            answer = mine.of_input(Input(x.at.topic, x.at.partition, x.at.offset))
            said = [y for y in document(answer)["records"] if y["source"] == x.source]
            assert any(y["what_if"] is not None for y in said) or x.verdict.reason in NO_ROW, (query.name, x)
            assert not [y for y in said if y["what_if"] and not y["what_if"]["complete"]], (query.name, x)
            kinds |= {c["kind"] for y in said if y["what_if"] for c in y["what_if"]["changes"]}
    assert kinds or of.dialect in ("sqlstream", "lenses")  # of what they leave out nothing is given by one change


def leaves(tree: Tree) -> int:
    return tree.count + sum(leaves(x) for x in tree.inputs)


EACH = 1 if effort.LAW else 3  # of how many rows one is asked for
# Rows that are not found by the causes that the run has left: of groups, sorted windows, earlier tables of sqlstream;
# of a group that is there before any record.
OTHERWISE = {"sqlstream": {"GROUPED": 3, "SORTED": 5, "PARTNERED": 4}, "risingwave": {"whole": 1}}


def test_each_row_that_is_there_has_a_derivation(ran: tuple[Queries, Path]) -> None:
    """What it names gives the row alone (`sure`): `test_why_causes.py`."""
    of, folder = ran
    functions = of_files([str(folder / "functions.py")] if of.functions else [])
    file = (of.sql, of.dialect) if of.dialect == "lenses" else None  # its WITH is a statement of its own
    store = Store(opened(folder / "store"))
    mine, topics = Writers(store, functions, None, True, file), TopicStore(store.objects)
    count, others = 0, Counter[str]()
    released = set[str]()
    for query in every_operator.queries(of):
        topic = query.sink.topic
        for partition, end in enumerate(topics.end_offsets(topic)):
            for offset in range(0, end, EACH):
                found = why(mine, topic, offset, partition, None)
                (row,) = found.rows
                assert (row.at.partition, row.at.offset) == (partition, offset)
                assert row.sure, (query.name, offset, row)
                assert leaves(row.tree) > 0 or (query.name, offset) == ("whole", 0), (query.name, offset, row)
                assert f"made by {found.query} in batch" in str(found)
                assert any(x.called.endswith("join") for x in query.root.walk()) or "no partner" not in str(found)
                others[query.name] += not by_its_causes(mine, query.name, row)
                released.add(row.released or "")
                count += 1
    assert count > 20 // EACH
    known = Counter(OTHERWISE.get(of.dialect, {}))
    assert +others == known if EACH == 1 else +others <= known
    assert EACH > 1 or of.dialect != "ksqldb" or any(x.endswith("which moved the clock") for x in released)


def by_its_causes(mine: Writers, query: str, row: Row) -> bool:
    """Whether the run has left what a row came of; then the row is found by that alone."""
    deriving = Deriving(mine, mine.asked(query), 1)
    there = deriving._output.at(row.at.partition, row.at.offset)
    told = deriving._recorded.of(there)
    start = deriving._recorded.start([told])
    if start is None:
        return False
    (found,) = deriving._judged([there], deriving._asked.taken(start, MOST), 0, [told]).rows
    assert (found.completed, found.released, found.tree) == (row.completed, row.released, row.tree)
    return True


def test_a_row_that_is_in_two_partitions(tmp_path: Path) -> None:
    TopicStore(opened(tmp_path / "s")).create("r", 2)
    for partition in range(2):
        TopicStore(opened(tmp_path / "s")).append("r", [{"partition": partition, "value": {"V": "é"}, "timestamp": -5}])
    text = """CREATE STREAM r (v STRING) WITH (kafka_topic='r', value_format='JSON', partitions=2);
    CREATE STREAM o AS SELECT v FROM r;"""
    where = ("--store", tmp_path / "s")
    said = on_shared_spark("run", "-e", text, *where, "--dialect", "ksqldb", "--until-idle", cwd=tmp_path)
    assert said.code == 0, said.err
    for partition in range(2):
        shown = braid("why", "o", "--offset", 0, "-p", partition, *where).out
        assert f"there again, for causes of its own: O:{1 - partition}:0\n" in shown
        assert f"complete with r:{partition}:0" in shown


def test_a_key_is_asked_for_as_it_is_shown(ran: tuple[Queries, Path]) -> None:
    """The key of a group may be NULL, so it is written in parts that have names of Braid's own."""
    of, folder = ran
    if of.dialect != "risingwave":
        pytest.skip("its groups alone are written so")
    mine = Writers(Store(opened(folder / "store")), of_files([]), None, True, None)
    ends = TopicStore(mine.store.objects).end_offsets("grouped")
    for partition, offset in ((p, end - 1) for p, end in enumerate(ends) if end):
        (row,) = why(mine, "grouped", offset, partition, None).rows
        assert row.key is not None and "," not in row.key
        found = why(mine, "grouped", None, None, row.key).rows
        assert (row.at.partition, row.at.offset) in [(x.at.partition, x.at.offset) for x in found]
