"""The archive of the JVM's classes: when it is made, by whom, and that no run fails by it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from braid.errors import BraidError
from braid.face import quick_start
from braid.spark import jvm


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An environment of the test's own, whose archive is not there."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    jvm.archive.cache_clear()
    yield Path(jvm.archive_of(0))
    jvm.archive.cache_clear()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Processes that would have been started."""
    found: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda words, **_: found.append(words))
    return found


def test_a_run_lets_it_be_made_where_it_is_missing(place: Path, begun: list[list[str]]) -> None:
    quick_start.make_behind("local[*]")
    assert [words[-3:] for words in begun] == [["braid", "doctor", "--quick-start"]]
    assert "after a first run" in quick_start.described()
    place.parent.mkdir()
    place.touch()
    quick_start.make_behind("local[*]")
    assert len(begun) == 1 and quick_start.described().endswith(str(place))


@pytest.mark.parametrize("why", ["a cluster", "it is being made", "it failed", "no folder to write"])
def test_a_run_does_not_let_it_be_made(
    why: str, place: Path, begun: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    place.parent.mkdir()
    with open(place.parent / ".making", "wb") as lock:
        if why == "it is being made":
            fcntl.flock(lock, fcntl.LOCK_EX)
        if why == "it failed":
            Path(f"{jvm.archive()}.failed").touch()
        if why == "no folder to write":
            monkeypatch.setattr(os, "access", lambda *_: False)
        quick_start.make_behind("spark://x:7077" if why == "a cluster" else "local[2]")
    assert not begun


def test_what_fails_once_is_not_tried_behind_each_run(
    place: Path, begun: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[Any] = [1, 0, 0]

    def learn(new: str) -> int:
        code: int = ends.pop(0)
        if len(ends) < 2 and code == 0:
            Path(new).write_text("classes")
        return code

    monkeypatch.setattr(quick_start, "_learn", learn)
    with pytest.raises(BraidError, match="writes no archive"):
        quick_start.make()
    assert "to try again" in quick_start.described()
    quick_start.make_behind("local[2]")
    assert not begun
    place = Path(jvm.archive_of(len("classes")))
    assert quick_start.make() == str(place) and place.read_text() == "classes"
    assert not os.path.exists(f"{jvm.archive()}.failed") and ends == [0]
    assert quick_start.make() == str(place) and ends == [0]  # it is there


def test_a_stale_one_is_not_there(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another Java, other jars or another class path give another name; two are kept."""
    names = {place}
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(f"{jvm.CLASS_PATH} /a.jar\n")
    for change in ("class path", "java"):
        if change == "java":
            (tmp_path / "jdk" / "bin").mkdir(parents=True)
            (tmp_path / "jdk" / "bin" / "java").write_text("#!/bin/sh\n")
            (tmp_path / "jdk" / "bin" / "java").chmod(0o700)
            monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
        jvm.archive.cache_clear()
        names.add(Path(jvm.archive_of(0)))
    assert len(names) == 3
    place.parent.mkdir()
    for n, path in enumerate(sorted(names)):
        path.touch()
        os.utime(path, (n, n))
    (place.parent / "~7-killed.jsa").touch()
    jvm.archive.cache_clear()
    newest = Path(jvm.archive_of(0))
    newest.unlink()
    monkeypatch.setattr(quick_start, "_learn", lambda new: Path(new).touch() or 0)
    monkeypatch.setattr("braid.spark.jvm.java_version", lambda: 17)
    quick_start.make()
    left = sorted(p.name for p in place.parent.glob("*.jsa"))
    assert len(left) == 2 and newest.name in left


def test_a_class_path_of_the_users_own_goes_without(place: Path) -> None:
    place.parent.mkdir()
    place.touch()
    assert str(place) in jvm.told({}, "1", "x.log")[jvm.JAVA_OPTIONS]
    assert str(place) not in jvm.told({jvm.CLASS_PATH: "/b.jar"}, "1", "x.log")[jvm.JAVA_OPTIONS]


def test_one_that_is_cut_short_is_not_taken(place: Path) -> None:
    """A JVM would die of it."""
    place.parent.mkdir()
    Path(jvm.archive_of(9)).write_text("classe")
    assert jvm.archived() == "" and "SharedArchiveFile" not in jvm.told({}, "1", "x.log")[jvm.JAVA_OPTIONS]
    assert "after a first run" in quick_start.described()
