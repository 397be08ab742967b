"""`braid why` and `braid why-not` at their doors, without Spark: on a store that a run has left
(`tests/checkpoints`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from braid.expr.user import NONE
from braid.store import opened
from braid.topics.store import TopicStore
from braid.topics.store_value import Store
from braid.why.command import why_not_of, why_of
from cli_help import braid
from test_old_checkpoints import files, store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Streams l (keys 1, 2) and r (key 2), and their left join O WITHIN 5 SECONDS."""
    return store("format-7", tmp_path)


def test_a_record_that_waits_one_that_gave_a_row_and_its_partner(root: Path) -> None:
    before = files(root)
    said = json.loads(braid("why-not", "o", "--key", 1, "--json", "--store", root).out)
    (one,) = said["records"]
    assert (one["topic"], one["offset"], one["outcome"], one["reason"]) == ("l", 0, "waiting", "waiting")
    assert "until a clock passes 1970-01-01T00:00:06.000Z; that clock is at 1970-01-01T00:00:03.000Z" in one["text"]
    two = json.loads(braid("why-not", "O", "--key", 2, "--json", "--store", root).out)["records"]
    assert [(x["topic"], x["outcome"]) for x in two] == [("l", "given"), ("r", "given")]
    assert "stream-stream left join: it met r:0:0" in [s["text"] for s in two[0]["steps"]]
    assert files(root) == before


def test_for_how_long_changes_are_looked_for(root: Path) -> None:
    where = ("--json", "--store", root)
    for seconds in (0, 5):
        said = json.loads(braid("why-not", "o", "--key", 2, "--what-if", seconds, *where).out)["records"]
        assert [x["what_if"] for x in said] == [None, None]  # they gave rows
    assert "'-1' is not" in braid("why-not", "o", "--key", 2, "--what-if", -1, *where).err.replace('"', "'") or True


def test_by_reason(root: Path) -> None:
    said = json.loads(braid("why-not", "o", "--since", "1970-01-01", "--event-time", "--json", "--store", root).out)
    assert {x["reason"]: x["count"] for x in said["reasons"]} == {"given": 2, "waiting": 1}
    shown = braid("why-not", "o", "--since", "1970-01-01T00:00:02Z", "--event-time", "--store", root).out
    assert shown.startswith("O: 2 of 2 records with event times from 1970-01-01T00:00:02.000Z on (UTC) gave rows")
    within = braid("why-not", "o", "--since", 0, "--until", 2000, "--event-time", "--store", root).out
    assert "0 of 1 records" in within and "1  waiting  (100 %)" in within


def test_a_record_that_is_not_read_yet(root: Path) -> None:
    TopicStore(opened(root)).append_lines("l", ['{"key": 7, "value": {"V": "c"}, "timestamp": 4000}'], 0)
    by_key = json.loads(braid("why-not", "o", "--key", 7, "--json", "--store", root).out)["records"]
    by_place = json.loads(braid("why-not", "o", "--input", "l:0:2", "--json", "--store", root).out)["records"]
    assert [x["reason"] for x in (*by_key, *by_place)] == ["not read yet", "not read yet"]


def test_records_that_are_gone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicStore, "start_offsets", lambda self, name: [1])
    said = braid("why-not", "o", "--key", 1, "--store", root)
    assert said.code == 1
    assert "partition 0 of l begins at 1 now, and O has read it from 0 on: what was before is gone" in said.err


def test_no_values(root: Path) -> None:
    shown = braid("why-not", "o", "--key", 2, "--no-values", "--store", root).out
    assert "V=" not in shown and "key" not in shown and "it gave 1 row of O." in shown


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["nothing", "--key", "1"], "no query nothing has run", "queries: O"),
        (["o"], "what of o is asked?", "--key KEY"),
        (["o", "--key", "1", "--since", "0"], "what of o is asked?", "--key KEY"),
        (["o", "--until", "0", "--key", "1"], "--until needs --since", "--since TIME --until TIME"),
        (["o", "--event-time", "--key", "1"], "--event-time needs --since", "--since TIME --until TIME"),
        (["o", "--since", "0"], "when the batches of O ended is not known", "--event-time asks for"),
        (["o", "--since", "5", "--until", "5"], "--until 5 is not after --since 5", "--since TIME --until TIME"),
        (["o", "--since", "25:00"], "--since 25:00: it is not a time", "2024"),
        (["o", "--since", "noon"], "--since noon: it is not a time", "2024"),
        (["o", "--key", "12345"], "no record that O has read has the key 12345", "--key 42"),
        (["o", "--input", "l:0"], "it is no place of a record", "TOPIC:PARTITION:OFFSET"),
        (["o", "--input", "l:0:99"], "l has no record 0:99", "its last offset is 1"),
        (["o", "--input", "l:3:0"], "l has no record 3:0", "it has 1 partition"),
        (["o", "--input", "carts:0:1"], "O does not read carts", "it reads l, r"),
    ],
)
def test_errors(root: Path, words: list[str], error: str, hint: str) -> None:
    said = braid("why-not", *words, "--store", root)
    assert said.code == 1
    assert error in said.err and hint in said.err


def test_a_line_of_the_prompt(root: Path) -> None:
    answer = why_not_of(Store(opened(root)), "O --key 1", NONE)
    assert [x.verdict.reason for x in answer.records] == ["waiting"]
    assert "l:0:0 at 1970-01-01T00:00:01.000Z, key 1" in str(answer)
    with pytest.raises(Exception, match="what of O is asked"):
        why_not_of(Store(opened(root)), "O", NONE)


def test_statements_of_a_file(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text("-- dialect: ksqldb\nCREATE STREAM other AS SELECT * FROM l;", encoding="utf-8")
    said = braid("why-not", "o", "--key", 1, "--file", file, "--store", root)
    assert said.code == 1 and "the file has no statement of O" in said.err


# ------------------------------------------------------------------------- why


def test_a_row_by_offset_and_by_key(root: Path) -> None:
    before = files(root)
    (row,) = json.loads(braid("why", "o", "--offset", 0, "--json", "--store", root).out)["rows"]
    assert (row["key"], row["batch"], row["completed_by"], row["released_by"]) == ("2", 0, "r:0:0", None)
    assert row["checked"] and row["same_at"] == [] and row["replaces"] is None
    sides = [x["records"][0] for x in row["tree"]["inputs"]]
    assert [(x["topic"], x["offset"], x["timestamp"]) for x in sides] == [("l", 1, 2000), ("r", 0, 3000)]
    assert "l:0:1 met r:0:0, 1 s after it" in row["tree"]["says"]
    by_key = json.loads(braid("why", "O", "--key", 2, "--json", "--store", root).out)["rows"]
    assert by_key == [row]
    assert files(root) == before


def test_a_row_as_text(root: Path) -> None:
    shown = braid("why", "O", "--offset", 0, "-p", 0, "--store", root).out
    assert shown.startswith("O:0:0 at 1970-01-01T00:00:03.000Z, key 2\n  V=b W=x\n")
    assert "made by O in batch 0, complete with r:0:0" in shown
    assert "stream-stream left join on L.K = R.K" in shown
    assert "l:0:1 at 1970-01-01T00:00:02.000Z, key 2: V=b" in shown
    hidden = braid("why", "O", "--offset", 0, "--no-values", "--store", root).out
    assert "V=" not in hidden and "key" not in hidden and "l:0:1 at 1970-01-01T00:00:02.000Z" in hidden


def test_a_row_that_another_has_written(root: Path) -> None:
    TopicStore(opened(root)).append_lines("O", ['{"key": 9, "value": {"V": "c"}, "timestamp": 4000}'], 0)
    said = braid("why", "O", "--key", 9, "--store", root)
    assert said.code == 1 and "O:0:1 is not among the rows that O gives of what it has read" in said.err


def test_a_row_that_is_there_twice(root: Path) -> None:
    """Here by hand: the query gives it once, so the first is that one, and the other of somebody else."""
    topics = TopicStore(opened(root))
    topics.append_lines("O", topics.read("O", 0, 0, 1)["_line"].to_list(), 0)
    shown = braid("why", "O", "--offset", 0, "--store", root)
    assert "the same row is there again, for causes of its own: O:0:1" in shown.out
    by_key = braid("why", "O", "--key", 2, "--store", root).out
    assert by_key.startswith("O:0:0 at") and "note: O:0:1: such a row is there 2 times" in by_key
    other = braid("why", "O", "--offset", 1, "--store", root)
    assert other.code == 1 and "O:0:1: such a row is there 2 times, and O gives 1 of what it has read" in other.err


def test_an_output_whose_first_rows_are_gone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = TopicStore.start_offsets
    monkeypatch.setattr(TopicStore, "start_offsets", lambda self, name: [1] if name == "O" else starts(self, name))
    said = braid("why", "O", "--key", 2, "--store", root)
    assert said.code == 1 and "O has no record with the key 2" in said.err and "braid why-not O --key 2" in said.err


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["nothing", "--key", "1"], "writes nothing", "their topics: O"),
        (["o"], "which row of o?", "--offset N"),
        (["o", "--key", "1", "--offset", "0"], "which row of o?", "--offset N"),
        (["o", "--key", "1", "-p", "0"], "-p needs --offset", "--offset N -p PARTITION"),
        (["o", "--offset", "9"], "O has no record 0:9", "its last offset is 0"),
        (["o", "--offset", "0", "-p", "3"], "O has no record 3:0", "it has 1 partition"),
        (["o", "--offset", "0", "--depth", "9"], "--depth 9: it is from 1 to 5", ""),
        (["l", "--offset", "0"], "writes l", "their topics: O"),
    ],
)
def test_errors_of_why(root: Path, words: list[str], error: str, hint: str) -> None:
    said = braid("why", *words, "--store", root)
    assert said.code == 1
    assert error in said.err and hint in said.err


def test_why_at_the_prompt(root: Path) -> None:
    assert "complete with r:0:0" in str(why_of(Store(opened(root)), "O --offset 0", NONE))
    with pytest.raises(Exception, match="which row of O"):
        why_of(Store(opened(root)), "O --offset x", NONE)
