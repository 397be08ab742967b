"""`braid why-not` at its doors, without Spark: on a store that a run has left (`tests/checkpoints`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from braid.expr.user import NONE
from braid.store import opened
from braid.topics.store import TopicStore
from braid.topics.store_value import Store
from braid.why.command import why_not_of
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


def test_by_reason(root: Path) -> None:
    said = json.loads(braid("why-not", "o", "--since", "1970-01-01", "--json", "--store", root).out)
    assert {x["reason"]: x["count"] for x in said["reasons"]} == {"given": 2, "waiting": 1}
    shown = braid("why-not", "o", "--since", "1970-01-01T00:00:02Z", "--store", root).out
    assert shown.startswith("O: 2 of 2 records of this time gave rows")
    within = braid("why-not", "o", "--since", 0, "--until", 2000, "--store", root).out
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
