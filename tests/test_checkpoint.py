"""What a checkpoint records, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from braid.errors import BraidError
from braid.stage.checkpoint import FORMAT, NAME, Document, load, open_or_create
from braid.store import opened
from sums import loaded, with_sum

PLAN = "join l r\n  how left\n  within 10 s\n  retention 20 s\nsink o"


def document(**changes: object) -> Document:
    base = Document(
        query="O",
        plan=PLAN,
        sql="SELECT *\nFROM l LEFT JOIN r",
        settings={"dialect": "ksqldb", "braid.late": "lookup", "list": (1, 2)},
        buckets=8,
        outputs=2,
        shuffle=2,
        bucket_ids=(2, 0, 4, 1, 5, 3, 10, 6),
        sources=(("r", 0), ("l", 0), ("l", 1)),
        spark="4.2.1",
        files=("R",),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_first_start_records(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "O"
    assert load(opened(folder)) is None
    assert open_or_create(opened(folder), document()) == document()
    found = load(opened(folder))
    assert found is not None and found == document(settings={**document().settings, "list": [1, 2]})
    x = json.loads((folder / NAME).read_text())
    assert x["format"] == FORMAT and x["hash"] == document().hash and x["spark"] == "4.2.1"
    assert [p.name for p in folder.iterdir()] == [NAME]


def test_the_same_query_again_writes_nothing(tmp_path: Path) -> None:
    open_or_create(opened(tmp_path), document())
    before = (tmp_path / NAME).stat()
    again = open_or_create(opened(tmp_path), document(spark="4.2.3"))
    assert again.spark == "4.2.1" and (tmp_path / NAME).stat().st_ino == before.st_ino


def test_other_words_are_the_same_query(tmp_path: Path) -> None:
    open_or_create(opened(tmp_path), document())
    before = (tmp_path / NAME).read_bytes()
    assert open_or_create(opened(tmp_path), document(sql="select * from l left join r -- all")) == load(
        opened(tmp_path)
    )
    assert (tmp_path / NAME).read_bytes() == before


def test_what_is_recorded_wins_over_defaults(tmp_path: Path) -> None:
    open_or_create(opened(tmp_path), document())
    other = document(
        buckets=16, outputs=4, shuffle=4, bucket_ids=tuple(range(16)), sources=(("l", 0), ("l", 1), ("r", 0))
    )
    found = open_or_create(opened(tmp_path), other)
    assert (found.buckets, found.outputs, found.shuffle) == (8, 2, 2)
    assert found.bucket_ids == document().bucket_ids and found.sources[0] == ("r", 0)
    with pytest.raises(BraidError, match="buckets: 8 in the checkpoint, 16 now"):
        open_or_create(opened(tmp_path), other, asked=["buckets"])
    with pytest.raises(BraidError, match="partitions of the sink: 2 in the checkpoint, 4 now"):
        open_or_create(opened(tmp_path), other, asked=["outputs"])


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"plan": PLAN.replace("left", "full")}, ["-  how left", "+  how full", "the plan now"]),
        (
            {"plan": PLAN.replace("left", "full"), "sql": "SELECT *\nFROM l FULL JOIN r"},
            ["   SELECT *", "  -FROM l LEFT JOIN r", "  +FROM l FULL JOIN r", "the query now"],
        ),
        ({"query": "P"}, ["query: O in the checkpoint, P now"]),
        (
            {"settings": {"dialect": "ksqldb", "list": [1, 2]}},
            ["setting braid.late: lookup in the checkpoint, nothing now"],
        ),
        ({"spark": "4.3.0"}, ["Spark: 4.2 in the checkpoint, 4.3 now"]),
        ({"sources": (("r", 0), ("l", 0))}, ["source l, partition 1: in the checkpoint only"]),
        ({"files": {}}, ['sources read from files: ["R"] in the checkpoint, [] now']),
    ],
)
def test_a_difference_is_shown_and_refused(tmp_path: Path, changes: dict[str, object], shown: list[str]) -> None:
    open_or_create(opened(tmp_path), document())
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(BraidError) as e:
        open_or_create(opened(tmp_path), document(**changes))
    assert all(s in str(e.value) for s in shown), str(e.value)
    assert e.value.hint and "braid reset" in e.value.hint
    assert (tmp_path / NAME).read_bytes() == before


def test_all_differences_are_shown_at_once(tmp_path: Path) -> None:
    open_or_create(opened(tmp_path), document())
    with pytest.raises(BraidError) as e:
        open_or_create(opened(tmp_path), document(plan=PLAN + "\n", query="P", spark="5.0"))
    assert len(e.value.details) >= 2
    with pytest.raises(BraidError) as e:
        open_or_create(opened(tmp_path), document(plan="\n".join(map(str, range(500)))))
    assert "more lines" in e.value.details[-1] and len(e.value.details) < 70


def test_a_plan_in_json_is_compared_in_lines(tmp_path: Path) -> None:
    column = ["Col", {"name": "L.K", "type": "INT"}]
    join = {"left": ["Source", {"name": "L", "columns": [column] * 3}], "how": "left", "key": column}
    open_or_create(opened(tmp_path), document(plan=json.dumps(["Join", join])))
    with pytest.raises(BraidError) as e:
        open_or_create(opened(tmp_path), document(plan=json.dumps(["Join", {**join, "how": "inner"}])))
    shown = [e.value.message, *e.value.details]
    assert '  -  how: "left"' in shown and '  +  how: "inner"' in shown
    assert '     key: Col(name="L.K", type="INT")' in shown and not any("[[" in line for line in shown)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    open_or_create(opened(tmp_path), document())
    path = tmp_path / NAME
    data = path.read_bytes()
    x = loaded(path)
    damaged = [
        data[: len(data) // 2],
        b"",
        b"\xff\xfe",
        b"[]",
        with_sum({**x, "plan": "another"}),
        with_sum({k: v for k, v in x.items() if k != "buckets"}),
        with_sum({**x, "format": "one"}),
        with_sum({**x, "files": 7}),
        json.dumps(x).encode(),
    ]
    for bad in damaged:
        path.write_bytes(bad)
        with pytest.raises(BraidError, match="cannot be read") as e:
            open_or_create(opened(tmp_path), document())
        assert str(path) in e.value.message and path.read_bytes() == bad
    for other in (4, FORMAT + 1):
        path.write_bytes(with_sum({**x, "format": other}))
        with pytest.raises(BraidError, match=f"has format {other}"):
            open_or_create(opened(tmp_path), document())


def test_a_folder_of_sparks_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(BraidError, match=r"but no braid\.json"):
        open_or_create(opened(tmp_path), document())
    (tmp_path / "file").write_text("")
    with pytest.raises(BraidError, match="cannot be read"):
        open_or_create(opened(tmp_path / "file"), document())
