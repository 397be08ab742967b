"""What was meant as a URL and is none is never taken for a folder of that name, at any door.

In: places as users mistype them. Out: one line that says what to write; nothing is made.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from braid import connect
from braid.errors import BraidError
from braid.store import is_url, on_disk
from cli_help import braid

MISTYPED = ("s3:/b/x", "s3:b/x", "S3:/b/x", "gs:/b/x", "az:/c/x", "s3a:/b/x", "file:/tmp/x", "hdfs:/x", "kafka:9092")
SQL = "CREATE STREAM o (k INT KEY, v INT) WITH (kafka_topic='o', value_format='JSON', partitions=1);"
QUERY = SQL + "CREATE STREAM p AS SELECT * FROM o;"
TABLE = "CREATE TABLE t (k INT PRIMARY KEY, v INT) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
DOORS = (
    ("put", "o", "--store", "{}"),
    ("cat", "o", "--store", "{}"),
    ("topics", "--store", "{}"),
    ("verify", "--store", "{}"),
    ("usage", "--store", "{}"),
    ("sql", "-e", "SELECT * FROM o;", "--store", "{}"),
    ("check", "-e", SQL, "--store", "{}"),
    ("run", "-e", SQL, "--store", "{}"),
    ("run", "-e", SQL, "--checkpoint", "{}"),
    ("run", "-e", QUERY, "--checkpoint", "{}", "--until-idle"),
    ("reset", "q", "--checkpoint", "{}"),
    ("usage", "--checkpoint", "{}"),
    ("run", "-e", QUERY, "--source", "o={}/x.csv", "--until-idle"),
    ("run", "-e", QUERY, "--sink", "p={}/x.csv", "--until-idle"),
    ("run", "-e", QUERY, "--sink", "p=delta:{}/x", "--until-idle"),
    ("check", "-e", TABLE, "--source", "t=snapshot:{}/x.csv"),
    ("copy", "s", "{}"),
    ("copy", "{}", "s"),
    ("backup", "{}", "--store", "s"),
    ("restore", "{}", "t"),
    ("pack", "{}"),
)


@pytest.mark.parametrize("door", DOORS, ids=" ".join)
def test_no_door_takes_it(door: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert braid("put", "o", "--store", "s", stdin='{"key": 1, "value": {}}\n').code == 0
    for place in MISTYPED:
        before = sorted(x for x in tmp_path.rglob("*") if "s" not in x.relative_to(tmp_path).parts[:1])
        said = braid(*(word.format(place) for word in door), stdin='{"key": 1, "value": {}}\n')
        assert said.code == 1 and "is neither a URL nor a path" in said.err, (place, said)
        assert sorted(x for x in tmp_path.rglob("*") if x.relative_to(tmp_path).parts[0] != "s") == before, place


def test_a_session_does_not_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in MISTYPED:
        with pytest.raises(BraidError, match="is neither a URL nor a path"):
            connect(store=place)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("door", ["source=o={}/x.csv", "sink=p={}/x.csv", "sink=p=delta:{}/x"])
def test_files_are_no_objects(door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A well written URL, where only a disk does."""
    monkeypatch.chdir(tmp_path)
    option, _, what = door.partition("=")
    for place in ("s3://bucket", "file:///tmp/x", "hdfs://h/x"):
        said = braid("check", "-e", QUERY, f"--{option}", what.format(place))
        assert said.code == 1 and "error" in said.err, said
        assert not (tmp_path / f"{place.partition('/')[0]}").exists()


def test_a_path_that_begins_so_is_written_with_a_point() -> None:
    for path in ("./s3:/b/x", "/s3:/b", "data", "a/b:/c", "2024:x", "..", "x:y"):
        assert not is_url(path) and on_disk(path) == path
    for url in ("s3://b/x", "S3://b/x", "file:///x"):
        assert is_url(url)
        with pytest.raises(BraidError, match="is no path"):
            on_disk(url)


def test_a_secret_in_it_is_not_shown() -> None:
    for place in ("s3:/KEY:SECRET@b/x", "s3:KEY:SECRET@b"):
        with pytest.raises(BraidError) as e:
            is_url(place)
        assert "SECRET" not in str(e.value)
