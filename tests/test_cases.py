"""Every page of `cases/<dialect>` on every runtime: the oracle, the local one however it is cut and spread, and Spark.

In: the Markdown pages. Rule: their rows follow the rules (docs/rules); a runtime that differs is wrong, or the page is.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from braid.testing.cases import DIALECTS, Outcome, accepted, blocks, case_files, run_case

FOLDER = Path(__file__).parent / "cases"
PAGES = {
    p.relative_to(FOLDER).with_suffix("").as_posix(): p
    for folder in (FOLDER / dialect for dialect in DIALECTS)
    if folder.is_dir()
    for p in case_files([str(folder)])
}
# What only binds needs no second look; what shows rows is cut and spread in all ways.
SHOWN = {"output", "standing", "query"}
KINDS = {name: {b.kind for b in blocks(p.read_text(encoding="utf-8"))} for name, p in PAGES.items()}
FED = [name for name in PAGES if KINDS[name] & SHOWN]
# One page an operator, for what costs much: one record a micro-batch on Spark, or in four buckets. A dialect adds a
# page for an operator that has none yet, and no other: the run on Spark must stay short.
OPERATORS = [
    "ksqldb/left_padded_at_close",  # stream-stream: parked rows, a release
    "ksqldb/stream_stream/late_rows",  # retention, the stored clock
    "ksqldb/stream_table/processing_order",
    "ksqldb/table_table/older_update",
    "ksqldb/table_table/filter_one_table",
    "ksqldb/stream_stream/where",  # filter
    "ksqldb/aggregates/over_a_stream",
    "ksqldb/aggregates/over_a_table",  # retract
    "ksqldb/statements/push_query",  # limit
    "ksqldb/statements/partition_by",
    "ksqldb/chains/padded_rows_match_later",
    "ksqldb/chains/another_key",  # an exchange between stages
    "ksqldb/statements/restart",
    "sqlstream/windows/outer_chain",  # sliding joins
    "lenses/stream_stream/left",  # two clocks
    "lenses/stream_table/value_field",  # remembered records, a table's changes by another key
    "lenses/table_table/keys",
    "lenses/lateral/single",
    "lenses/stream_table/grouped",  # latest values
    "risingwave/joins/diamond",  # regular join, coalescing
    "risingwave/asof/changes",
    "risingwave/temporal/remembered",  # temporal join with its memo
    "risingwave/windows/interval_join",  # cleaning, EMIT ON WINDOW CLOSE
]
# On Spark one page of twelve of each folder besides, since all run on the local runtime, which has the same operators
# and the same expressions; the others run in `make law`.
FOLDERS = {name.rpartition("/")[0] for name in FED}
ON_SPARK = {*OPERATORS, *(x for f in FOLDERS for x in [n for n in FED if n.rpartition("/")[0] == f][::12])}
AT_A_TIME = 2  # pages at a time on Spark


def check(outcome: Outcome) -> None:
    assert not outcome.failures, "\n" + "\n".join(f"{outcome.path}:{line}: {text}" for line, text in outcome.failures)
    assert outcome.blocks, f"{outcome.path} has no blocks"


@pytest.mark.parametrize("page", PAGES)
def test_reference(page: str) -> None:
    check(run_case(PAGES[page], "reference"))


@pytest.mark.parametrize("page", PAGES)
def test_local(page: str) -> None:
    check(run_case(PAGES[page], "local", batch=None, buckets=4))


@pytest.mark.law
@pytest.mark.parametrize("page", FED)
def test_local_in_one_bucket(page: str) -> None:
    check(run_case(PAGES[page], "local", batch=None, buckets=1))


@pytest.mark.law
@pytest.mark.parametrize("page", FED)
def test_local_record_by_record(page: str) -> None:
    check(run_case(PAGES[page], "local", batch=1, buckets=1))


@pytest.mark.parametrize("page", OPERATORS)
def test_local_record_by_record_in_four_buckets(page: str) -> None:
    check(run_case(PAGES[page], "local", batch=1, buckets=4))


# ----------------------------------------------------------- the runner itself

WRONG = """# A page with a mistake in every block
```sql ksqldb
CREATE STREAM s (k INT KEY, n INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT k, n, n > 0 AS yes FROM s;
```
```input
topic  timestamp  key  value
s      1          1    {"N": 1}
s      2          1    {"N": "x"}
```
```output o
timestamp  key  value
1          1    {"N": 1, "YES": 1}
```
```standing o
key  value
1    {"N": 1.0, "YES": true}
```
```drops o
{"reason": "null key"}
```
```explain o
{"nodes": [{"op": "read", "rekey": true}]}
```
```refused
CREATE STREAM p AS SELECT k FROM s;
----
only key columns
at 1:1
```
```refused
CREATE STREAM p AS SELECT k, n FROM s;
----
refused
```
```input
topic  timestamp  key  value
s      three      1    {"N": 1}
```
```output o
timestamp  key  value
```
"""


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    page = tmp_path / "wrong.md"
    page.write_text(WRONG, encoding="utf-8")
    outcome = run_case(page, "reference")
    assert [line for line, _ in outcome.failures] == [12, 16, 20, 23, 26, 32, 37]
    assert "timestamp is not JSON" in outcome.failures[-1][1], "nothing after an input that cannot be read is looked at"


FITS = """```sql ksqldb
CREATE STREAM s (k INT KEY, n INT) WITH (value_format='JSON'); CREATE STREAM o AS SELECT * FROM s;
```
"""
MISFITS = [
    ("```ouput s\ntimestamp  key  value\n```", 4, "did you mean output?"),
    ("```Output s\ntimestamp  key  value\n```", 4, "did you mean output?"),
    ("  ~~~ refuse\n  x\n  ~~~", 4, "did you mean refused?"),
    ("```results s\n```", 4, "the blocks of a case are sql, input"),
    ("```output\ntimestamp  key  value\n```", 4, "write the topic"),
    ("```drops\n```", 4, "write the query"),
    ("```output s\ntimestamp  key  value\n", 4, "the fence is not closed"),
    ("```sql lenses\nSHOW TABLES;\n```", 4, "the page is in ksqldb"),
    ("```refused\nSELECT 1;\n```", 4, "behind the statements write ----"),
    ("```input\ntopic  timestmp\ns  1\n```", 5, "did you mean timestamp?"),
    ("```output s\ntimestamp  keys\n```", 5, "did you mean key?"),
    ("```explain s\n{'nodes': 1}\n```", 5, "line 5: not JSON"),
    ("```drops o\n\nreason\n```", 5, "line 6: not JSON"),
    ("````text\n```ouput s\n```\n````", None, ""),
]


@pytest.mark.parametrize(("block", "line", "message"), MISFITS)
def test_a_block_that_would_check_nothing_is_refused(
    block: str, line: int | None, message: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(FITS + block + "\n", encoding="utf-8")
    failures = run_case(page).failures
    assert [at for at, _ in failures] == ([] if line is None else [line])
    assert all(message in said and "internal error" not in said for _, said in failures)


def test_an_unknown_dialect_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(FITS.replace("ksqldb", "kslqdb"), encoding="utf-8")
    ((line, said),) = run_case(page).failures
    assert line == 1 and "did you mean ksqldb?" in said


def test_accept_writes_what_came(tmp_path: Path) -> None:
    page = tmp_path / "wrong.md"
    page.write_text(WRONG, encoding="utf-8")
    page.write_text(accepted(WRONG, run_case(page, "reference")), encoding="utf-8")
    assert '1          1    {"N": 1, "YES": true}' in page.read_text(encoding="utf-8")
    assert [line for line, _ in run_case(page, "reference").failures] == [20, 23, 26, 32, 37]


# ---------------------------------------------------------------------- Spark


Case = tuple[str, int | None]  # a page, and how many records a micro-batch has


@pytest.fixture(scope="module")
def on_spark(request: pytest.FixtureRequest) -> Iterator[dict[Case, Future[Outcome]]]:
    """The outcomes of all Spark cases that were asked for: several pages at a time, in one session."""
    from braid.testing.on_spark import shared_session

    asked = [i for i in request.session.items if isinstance(i, pytest.Function) and "on_spark" in i.fixturenames]
    items = [i for i in asked if i.get_closest_marker("skip") is None]
    wanted = [i.callspec for i in items if i.get_closest_marker("skip") is None]
    cases: list[Case] = [(x.params["page"], x.params["batch"]) for x in wanted]
    shared_session()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {(page, batch): pool.submit(run_case, PAGES[page], "spark", batch) for page, batch in cases}
        pool.shutdown(cancel_futures=True)


@pytest.mark.spark
@pytest.mark.parametrize("batch", [None])
@pytest.mark.parametrize("page", [x if x in ON_SPARK else pytest.param(x, marks=pytest.mark.law) for x in FED])
def test_spark(page: str, batch: int | None, on_spark: dict[Case, Future[Outcome]]) -> None:
    check(on_spark[page, batch].result())


@pytest.mark.spark
@pytest.mark.parametrize("batch", [1])
@pytest.mark.parametrize("page", OPERATORS)
def test_spark_record_by_record(page: str, batch: int | None, on_spark: dict[Case, Future[Outcome]]) -> None:
    check(on_spark[page, batch].result())
