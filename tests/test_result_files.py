"""Folders of result files: whose they are, and what another run may do with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from braid.errors import BraidError
from braid.files.results import STAGING, check, claim, kind_of, last, publish


def staged(folder: Path, name: str, text: str) -> str:
    (folder / STAGING).mkdir(parents=True, exist_ok=True)
    made = f"{name}~0123abcd"
    (folder / STAGING / made).write_text(text)
    return made


def parts(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir() if p.name.startswith("part-")}


def refused(folder: Path, run: str | None, goes_on: bool, overwrite: bool) -> BraidError:
    with pytest.raises(BraidError) as e:
        check(str(folder), run, goes_on, overwrite)
    assert e.value.hint
    return e.value


def test_a_folder_belongs_to_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "out.csv"
    check(str(folder), None, False, False)
    claim(str(folder), "o-1")
    publish(str(folder), "o-1", 0, [staged(folder, "part-0000000000-00000.csv", "old")], "a")
    check(str(folder), "o-1", True, False)
    check(str(folder), "o-1", False, False)  # it died in its first batch
    assert "another run (o-1)" in str(refused(folder, None, False, False))
    assert "--overwrite" in (refused(folder, "o-2", False, False).hint or "")
    assert "goes on from its checkpoint" in (refused(folder, "o-2", True, True).hint or "")
    assert parts(folder) == {"part-0000000000-00000.csv": "old"}


def test_overwrite_leaves_nothing_of_the_other_run(tmp_path: Path) -> None:
    folder = tmp_path / "out.csv"
    claim(str(folder), "o-1")
    for batch in range(3):
        publish(str(folder), "o-1", batch, [staged(folder, f"part-{batch:010d}-00000.csv", "old")], f"of {batch}")
    (folder / "notes.txt").write_text("mine")
    check(str(folder), None, False, True)
    claim(str(folder), "o-2")
    assert not parts(folder) and (folder / "notes.txt").exists()
    publish(str(folder), "o-2", 0, [staged(folder, "part-0000000000-00000.csv", "new")], "a")
    claim(str(folder), "o-2")
    assert parts(folder) == {"part-0000000000-00000.csv": "new"}


def test_a_batch_is_published_once_and_by_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "out.csv"
    claim(str(folder), "o-1")
    assert last(str(folder), "o-1") is None
    for batch in (0, 1):
        publish(str(folder), "o-1", batch, [staged(folder, f"part-{batch:010d}-00000.csv", "a")], f"of {batch}")
    publish(str(folder), "o-1", 1, [staged(folder, "part-0000000001-00000.csv", "a")], "of 1")
    assert last(str(folder), "o-1") == (1, "of 1") and last(str(folder), "o") is None
    for batch, digest in ((1, "of another"), (0, "of 0")):
        with pytest.raises(BraidError, match="another writer"):
            publish(str(folder), "o-1", batch, [staged(folder, "part-0000000001-00000.csv", "b")], digest)
    assert parts(folder) == {f"part-{batch:010d}-00000.csv": "a" for batch in (0, 1)}


def test_names_that_a_dead_driver_did_not_give(tmp_path: Path) -> None:
    folder = tmp_path / "out.csv"
    claim(str(folder), "o-1")
    name = staged(folder, "part-0000000000-00000.csv", "a")
    (folder / ".commits").mkdir()
    commit = {"query": "o-1", "batch": 0, "files": [name]}
    (folder / ".commits" / f"o-1-{0:020d}.json").write_text(json.dumps(commit))
    claim(str(folder), "o-1")
    assert parts(folder) == {"part-0000000000-00000.csv": "a"}


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k\n")
    assert "a.csv, which is no result" in str(refused(tmp_path, None, False, True))
    assert "is a file" in str(refused(tmp_path / "a.csv", None, False, True))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.csv", "csv"), ("a.CSV/", "csv"), ("a.jsonl", "json"), ("x.y/a", "json"), ("p.parquet", "parquet")],
)
def test_the_end_of_the_name_tells_the_kind(name: str, kind: str) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize("name", ["a.xml", "a.json", "a.csv.gz"])
def test_an_ending_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(BraidError, match="cannot be written") as e:
        kind_of(name)
    assert ".parquet" in (e.value.hint or "")
