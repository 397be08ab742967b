"""`braid reset` and `braid rm`: what goes, what is refused, and that the query then begins anew."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import polars as pl
import pytest

from braid.errors import BraidError
from braid.face import reset as resetting
from braid.stage import checkpoint
from braid.store import opened
from braid.topics import TopicStore, checkpoint_paths, files
from braid.topics.drops import publish_drops, read_drops, stage_drops
from braid.topics.lock import StoreLock
from braid.topics.store_value import Store
from cli_help import QUICK, braid, on_shared_spark, records

SQL = """
CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT k, v / (v - 1) AS w FROM s;
CREATE STREAM p AS SELECT k, w FROM o;
CREATE STREAM q AS SELECT k, v FROM s;
"""
ROWS = "".join(json.dumps({"key": k, "value": {"V": k}, "timestamp": k}) + "\n" for k in range(3))


@pytest.mark.spark
def test_a_query_begins_anew(folder: Path) -> None:
    (folder / "q.sql").write_text(SQL)
    words = ("run", "q.sql", "--store", "s", "--until-idle", "--sink", "q=q.csv", *QUICK)
    assert braid("put", "s", "--store", "s", stdin=ROWS).code == 0
    assert on_shared_spark(*words, cwd=folder).code == 0
    store = TopicStore(opened(folder / "s"))
    assert store.end_offsets("O") == [3] == store.end_offsets("P") and len(read_drops(store.root, "O")) == 1

    said = braid("reset", "o", "--store", "s")
    assert said.code == 1 and "O is bound to other queries: P reads O" in said.err and "--cascade" in said.err
    assert "O is in use: O writes it, P reads it" in braid("rm", "O", "--store", "s").err
    with StoreLock(opened(folder / "s")):
        assert f"in use by process {os.getpid()}" in braid("reset", "p", "--store", "s").err
    said = braid("reset", "o", "--cascade", "--store", "s")
    assert said.code == 0, said.err
    assert sorted(store.names()) == ["s"] and not read_drops(store.root, "O")
    assert os.listdir(folder / "s" / "checkpoints") == ["Q"]
    said = braid("reset", "Q", "--store", "s")
    assert said.code == 0 and f"removed the results in {folder}/q.csv" in said.out and not (folder / "q.csv").exists()

    again = on_shared_spark(*words, cwd=folder)  # nothing is doubled, and the other query did not begin anew
    assert again.code == 0 and "goes on" not in again.err
    assert store.end_offsets("O") == [3] == store.end_offsets("P") and len(read_drops(store.root, "O")) == 1
    assert sum(len(p.read_text().splitlines()) - 1 for p in (folder / "q.csv").glob("*.csv")) == 3


@pytest.mark.spark
def test_what_others_wrote_is_not_lost(folder: Path) -> None:
    text = SQL + "INSERT INTO q (k, v) VALUES (7, 7);"
    assert braid("put", "s", "--store", "s", stdin=ROWS).code == 0
    assert on_shared_spark("run", "-e", text, "--store", "s", "--until-idle", *QUICK, cwd=folder).code == 0
    said = braid("reset", "q", "--store", "s")
    assert said.code == 1 and "Q holds more than Q wrote: INSERT statements" in said.err
    assert checkpoint.load(opened(folder / "s" / "checkpoints" / "Q")) is not None


def _once_begun(name: str, topic: str, parent: str = "s/checkpoints", reads: str = "s", store: str = "") -> None:
    """A checkpoint as a run leaves it, and what its query wrote: three records in one batch."""
    run = f"{name}-{0:08x}abcdef"
    plan = json.dumps(["Query", {"sink": ["Sink", {"topic": topic}]}])
    known = checkpoint.Document(
        name, plan, "", {"run": run, "sink": "topic"}, 4, 1, 1, (0,), ((reads, 0),), "4.2", store=store
    )
    checkpoint.open_or_create(opened(f"{parent}/{name}"), known)
    Path(f"{parent}/{name}.files").mkdir()
    TopicStore(opened("s")).create(topic, 1)
    TopicStore(opened("s")).append(topic, [{"key": k, "value": {}, "timestamp": k} for k in range(3)], query=run)
    drop = pl.DataFrame({"reason": ["late"]})
    staged = stage_drops(opened("s"), name, 0, 0, drop)
    assert staged is not None
    publish_drops(opened("s"), name, 0, [staged])


class Killed(BaseException):
    """As a process that ends here: nothing catches it."""


def test_a_reset_that_is_killed_between_its_steps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it ends, no query goes on without its output, and none begins while its old output is there; the same
    command again does the rest."""
    for ends in range(100):
        shutil.rmtree("s", ignore_errors=True)
        _once_begun("O", "O")
        _once_begun("P", "P", reads="O")
        reached = 0

        def hook(_: str, last: int = ends) -> None:
            nonlocal reached
            reached += 1
            if reached > last:
                raise Killed

        monkeypatch.setattr(files, "crash_hook", hook)
        try:
            list(resetting.reset(Store(opened("s")), "o", cascade=True))
            monkeypatch.setattr(files, "crash_hook", None)
            break
        except Killed:
            monkeypatch.setattr(files, "crash_hook", None)
        left = TopicStore(opened("s"))
        for name in ("O", "P"):
            at = f"s/checkpoints/{name}"
            whole = left.exists(name) and left.end_offsets(name) == [3]
            try:
                goes_on = checkpoint.load(opened(at)) is not None
            except BraidError as e:
                assert f"a reset of {name} was begun" in e.message and e.hint == f"braid reset {name} ends it"
                continue
            assert whole if goes_on else not left.exists(name), (ends, name)
        for name in ("o", "p"):
            with contextlib.suppress(BraidError):  # it has gone already
                list(resetting.reset(Store(opened("s")), name, cascade=True))
        assert left.names() == [] and os.listdir("s/checkpoints") == [] and os.listdir("s/drops") == []
    assert ends > 10


def test_a_checkpoint_that_cannot_be_read_begins_anew(folder: Path) -> None:
    """By what its query wrote; others stay as they are, and are not reset as long as nobody knows what it read."""
    _once_begun("O", "made")
    _once_begun("Q", "Q")
    (folder / "s/checkpoints/O/braid.json").write_text("{")
    said = braid("reset", "q", "--store", "s")
    assert (
        said.code == 1 and "O/braid.json cannot be read" in said.err and "braid reset O lets it begin again" in said.err
    )
    assert "O/braid.json cannot be read" in braid("rm", "Q", "--store", "s").err
    assert braid("reset", "o", "--store", "s").code == 0
    assert TopicStore(opened("s")).names() == ["Q"] and sorted(os.listdir("s/checkpoints")) == ["Q", "Q.files"]
    assert braid("reset", "q", "--store", "s").code == 0


def test_a_place_of_checkpoints_is_known_as_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to it may lead elsewhere later; two names of one place are one."""
    root, link = opened(tmp_path / "s"), tmp_path / "link"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    link.symlink_to(tmp_path / "a")
    checkpoint_paths.note(root, opened("link"))
    assert checkpoint_paths.parents(root)[1:] == [opened(tmp_path / "a")]
    link.unlink()
    link.symlink_to(tmp_path / "b")
    assert checkpoint_paths.parents(root)[1:] == [opened(tmp_path / "b")]
    checkpoint_paths.note(root, opened(tmp_path / "b"))
    assert len(resetting.parents_of(TopicStore(root), None)) == 2


def test_a_checkpoint_elsewhere(folder: Path) -> None:
    """The store knows of it, and it knows the store."""
    Path("s").mkdir()
    checkpoint_paths.note(opened(str(folder / "s")), opened(str(folder / "c")))
    known = checkpoint_paths.identity(opened(str(folder / "s")), opened(str(folder / "c/O")))
    _once_begun("O", "O", "c", store=known)
    assert "O is in use: O writes it" in braid("rm", "O", "--store", "s").err
    assert "s is in use: O reads it" in (TopicStore(opened("s")).create("s") or braid("rm", "s", "--store", "s")).err
    checkpoint_paths.refuse_other(opened(str(folder / "s")), opened(str(folder / "c/O")), known)
    with pytest.raises(BraidError, match="belongs to another store"):
        checkpoint_paths.refuse_other(opened(str(folder / "t")), opened(str(folder / "c/O")), known)
    Path("t").mkdir()
    assert "no query O has run in t" in braid("reset", "O", "--store", "t", "--checkpoint", "c").err
    _once_begun("O", "O")
    assert "O has checkpoints in" in braid("reset", "O", "--store", "s").err
    assert braid("reset", "O", "--store", "s", "--checkpoint", "c", "--cascade").code == 0
    assert TopicStore(opened("s")).names() == ["s"] and os.listdir("c") == []


@pytest.mark.spark
def test_a_run_with_a_checkpoint_elsewhere(folder: Path) -> None:
    """Without a word of where it lies: `rm`, `reset`, `drops`; another store is refused before anything is made."""
    (folder / "q.sql").write_text(SQL)
    words = ("--until-idle", *QUICK)
    for store in ("s", "t"):
        assert braid("put", "s", "--store", store, stdin=ROWS).code == 0
    assert on_shared_spark("run", "q.sql", "--store", "s", "--checkpoint", "c", *words, cwd=folder).code == 0
    assert "s is in use: O reads it, Q reads it" in braid("rm", "s", "--store", "s").err
    said = braid("run", "q.sql", "--store", "t", "--checkpoint", "c", *words)
    assert said.code == 1 and f"c/O belongs to another store than {folder}/t" in said.err
    assert TopicStore(opened("t")).names() == ["s"]
    assert braid("reset", "o", "--store", "s", "--cascade").code == 0
    assert sorted(os.listdir("c")) == ["Q"] and TopicStore(opened("s")).names() == ["Q", "s"]
    assert on_shared_spark("run", "q.sql", "--store", "s", "--checkpoint", "c", *words, cwd=folder).code == 0
    assert TopicStore(opened("s")).end_offsets("O") == [3] == TopicStore(opened("s")).end_offsets("Q")


@pytest.mark.spark
def test_or_replace_takes_the_place_of_a_query_that_begins_anew(folder: Path) -> None:
    """Which no longer runs: it may be another query altogether."""
    first = SQL.split("CREATE STREAM p", maxsplit=1)[0]
    second = "CREATE OR REPLACE STREAM o AS SELECT k, v + 1 AS n FROM s;"
    words = ("--store", "s", "--until-idle", *QUICK)
    assert braid("put", "s", "--store", "s", stdin=ROWS).code == 0
    assert on_shared_spark("run", "-e", first, *words, cwd=folder).code == 0
    again = first.split("CREATE STREAM o", maxsplit=1)[0] + second
    assert "O runs, and cannot be replaced by this" in braid("run", "-e", again, *words).err
    assert braid("reset", "o", "--store", "s").code == 0
    said = on_shared_spark("run", "-e", again, *words, cwd=folder)
    assert said.code == 0, said.err
    assert [r["value"] for r in records("O")] == [{"N": 1}, {"N": 2}, {"N": 3}]


def test_rm(folder: Path) -> None:
    assert braid("run", "-e", SQL.split("CREATE STREAM o", maxsplit=1)[0], "--store", "s").code == 0
    TopicStore(opened("s")).create("other", 1)
    assert "no topic x" in braid("rm", "x", "--store", "s").err
    assert braid("rm", "S", "--store", "s").out.splitlines() == [
        "removed S from the catalogue (ksqldb)",
        "removed topic s",
    ]
    assert braid("rm", "other", "--store", "s").out.splitlines() == ["removed topic other"]
    assert TopicStore(opened("s")).names() == [] and "no query o has run" in braid("reset", "o", "--store", "s").err
    assert "there is no store" in braid("reset", "o", "--store", "none").err
