"""Stores that move: from a folder to an object store and back, in the midst of their queries' lives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore")
pytest.importorskip("pyspark")

from braid.errors import BraidError
from braid.face.copy import copy
from braid.face.rescale import rescale
from braid.stage import offset_log, state_file
from braid.store import opened
from braid.topics import TopicStore, files, log
from braid.topics.interface import open_topics
from braid.topics.store_value import Store
from cli_help import QUICK, braid, on_shared_spark
from objects.test_checkpoints import QUERIES, STEPS, checkpoint, expected, feed, lines, room, run

__all__ = ["expected", "room"]
pytestmark = [pytest.mark.spark, pytest.mark.objects, pytest.mark.operations]


def copied(source: str, target: str) -> None:
    wrong = [x for x in copy(opened(source), opened(target)) if isinstance(x, BraidError)]
    assert wrong == []


def test_a_query_moves_while_it_lives(
    room: str, expected: tuple[int, list[list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun in a folder, it goes on in the object store with more tasks, and ends in another folder."""
    number, want = expected
    monkeypatch.setattr(log, "FOLD", 4)  # some commits are rollups by then
    places = [str(tmp_path / "laptop"), room, str(tmp_path / "back")]
    for step in range(STEPS):
        at = places[min(step, 2)]
        if at == room:
            copied(places[0], room)
            assert [*rescale(opened(room), QUERIES[number].name, buckets=12, tasks=3)]
        elif step == 2:
            copied(room, at)
        feed(at, step)
        run(at, number, tasks=None if step else 2)
    assert lines(at, number) == want
    folder = checkpoint(at, number)
    last = state_file.published(opened(folder))
    assert [x["batch"] for x in offset_log.read(opened(folder), last)] == [*range(last + 1)]
    assert state_file.buckets(opened(folder), last) == 12


@pytest.mark.parametrize("point", ["topic copied", "committed", "state copied", "query copied"])
def test_a_copy_that_is_killed(room: str, tmp_path: Path, point: str) -> None:
    """Nobody takes it for a store; the same command makes all of it."""
    source = str(tmp_path / "s")
    feed(source, 0)
    run(source)

    def die(at: str) -> None:
        if at == point:
            raise KeyboardInterrupt

    for target in (room, str(tmp_path / "t")):
        files.crash_hook = die
        try:
            with pytest.raises(KeyboardInterrupt):
                copied(source, target)
        finally:
            files.crash_hook = None
        if target == room:
            said = braid("topics", "--store", room)
            assert said.code == 1 and f"a copy to {room} was begun, and did not come to its end" in said.err, said
            with pytest.raises(BraidError, match="did not come to its end"):
                run(room)
        assert not [p for p in tmp_path.iterdir() if p.name.startswith("t")]
        copied(source, target)
        assert lines(target) == lines(source)
        with pytest.raises(BraidError, match="already"):
            copied(source, target)


DECLARED = """
CREATE STREAM clicks (k INT KEY, page STRING, t BIGINT) WITH (kafka_topic='clicks', value_format='AVRO', partitions=2);
INSERT INTO clicks (k, page, t) VALUES (1, 'a', 5);
CREATE STREAM pages AS SELECT k, page, CAST(page AS BIGINT) AS n FROM clicks;
"""


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "q.sql").write_text(DECLARED)
    said = on_shared_spark("run", "q.sql", "--store", "s", "--until-idle", *QUICK, cwd=tmp_path)
    assert said.code == 0, said.err
    yield tmp_path


def test_declarations_schemas_and_drops_move_too(room: str, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(filled)
    schemas = TopicStore(opened("s")).registry
    assert schemas.latest("clicks-value") is not None
    assert braid("copy", "s", room).code == 0
    assert open_topics(Store(opened(room))).registry.latest("clicks-value") == schemas.latest("clicks-value")
    for words in (("drops", "pages"), ("cat", "PAGES"), ("sql", "-e", "SHOW STREAMS;"), ("topics",)):
        there, here = braid(*words, "--store", room), braid(*words, "--store", "s")
        assert there.code == here.code == 0 and there.out == here.out, (there, here)
    assert "expression" in braid("drops", "pages", "--store", room).out
    said = on_shared_spark("run", "q.sql", "--store", room, "--until-idle", *QUICK, cwd=filled)
    assert said.code == 0 and "was done before; skipped" in said.err and "goes on after batch" in said.err, said
    assert not list(filled.glob("s3*"))


def test_what_cannot_move_is_told_before_anything_is_written(place: str, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("k,v,t\n1,a,5\n")
    sql = "CREATE STREAM f (k INT KEY, v STRING, t BIGINT) WITH (kafka_topic='f', value_format='JSON', timestamp='t');"
    (tmp_path / "q.sql").write_text(f"{sql} CREATE STREAM o AS SELECT * FROM f;")
    words: Any = ("run", "q.sql", "--store", "s", "--until-idle", "--source", "f=f.csv", *QUICK)
    assert on_shared_spark(*words, cwd=tmp_path).code == 0
    said = braid("copy", str(tmp_path / "s"), place)
    assert said.code == 1 and "O reads files" in said.err, said
    assert [name for name, _ in opened(place).list("")] == []
