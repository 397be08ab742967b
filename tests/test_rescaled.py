"""A query that goes on in other buckets and tasks: by the same records, however often, and wherever it is killed.

Two queries run in steps on Spark, in one store with the same spread from the first step to the last, in others not.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from braid.bind.program import Program
from braid.errors import BraidError
from braid.face.rescale import rescale
from braid.lower.lower import lower
from braid.spark.preparing import prepared
from braid.spark.query_options import QueryOptions
from braid.stage import batches, checkpoint, state_file
from braid.stage.checkpoint_runs import CheckpointRuns
from braid.stage.materialized import Published, known_by
from braid.store import opened
from braid.topics import TopicStore, files
from braid.topics.store_value import Store

pytestmark = [pytest.mark.spark, pytest.mark.operations]

STATEMENTS = """
CREATE STREAM l (k INT KEY, v INT) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM r (k INT KEY, w INT) WITH (kafka_topic='r', value_format='JSON', partitions=2);
CREATE TABLE t (k INT PRIMARY KEY, z INT) WITH (kafka_topic='t', value_format='JSON', partitions=2);
CREATE STREAM o WITH (partitions=2) AS SELECT l.k AS k, v, w, z FROM l
  LEFT JOIN r WITHIN 5 SECONDS GRACE PERIOD 1 SECOND ON l.k = r.k JOIN t ON l.k = t.k;
CREATE TABLE n WITH (partitions=2) AS SELECT k, COUNT(*) AS c, SUM(v) AS s FROM l WINDOW TUMBLING (SIZE 5 SECONDS)
  GROUP BY k;
"""
QUERIES = [e.query for e in Program("ksqldb").statements(STATEMENTS) if e.query is not None]
NAMES = ("O", "N")
STEPS = 4
SPREADS = ((8, 3), (2, 1), (6, 2))  # buckets and tasks after each step but the last


class Killed(BaseException):
    """As a process that ends here: nothing catches it."""


def put(store: TopicStore, step: int) -> None:
    """Records of a step; each step's are later than those before, so their order is the same in all batches."""
    rng, at = random.Random(step), 4000 * step
    for topic, field, count in (("t", "Z", 4), ("l", "V", 40), ("r", "W", 20)):
        for partition in (0, 1):
            keys = [k for k in range(40) if k % 2 == partition]
            rows = [
                json.dumps({"key": rng.choice(keys), "value": {field: step * 100 + n}, "timestamp": at + 80 * n})
                for n in range(count)
            ]
            store.append_lines(topic, rows, partition)


def begun(root: Path) -> TopicStore:
    store = TopicStore(opened(root))
    for topic in "lrt":
        store.create(topic, 2)
    return store


def run(root: Path) -> dict[str, Any]:
    """Until all input is read; the two queries, as they were."""
    from braid.spark import query as queries
    from braid.testing.on_spark import shared_session

    found = {}
    for query in QUERIES:
        options = QueryOptions(trigger={"availableNow": True})
        found[query.name] = queries.start(shared_session(), lower(query), Store(opened(str(root))), options)
        found[query.name].await_termination()
    return found


def lines(root: Path) -> dict[str, list[list[str]]]:
    """What the results' topics hold, partition by partition, in order."""
    store = TopicStore(opened(root))
    return {
        topic: [store.read(topic, p, 0, end)["_line"].to_list() for p, end in enumerate(store.end_offsets(topic))]
        for topic in NAMES
    }


def checkpoint_of(root: Path, name: str = "O") -> Path:
    return root / "checkpoints" / name


def standing(root: Path) -> set[tuple[object, ...]]:
    """The windows that stand, as whoever asks for them sees them."""
    rows = Published(opened(str(checkpoint_of(root, "N"))), known_by(1, True)).rows()
    assert rows is not None
    return set(rows.select("_k0", "_w0", "_w1", "v0", "v1").rows())


def asked(root: Path, buckets: int, tasks: int) -> None:
    for name in NAMES:
        assert "goes on in" in next(rescale(opened(str(root)), name, buckets, tasks))


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Copies of a run in one spread: "2" after its second step, "inside staged" and "inside committed" while it
    publishes a batch of the third, "end"."""
    root, found = tmp_path_factory.mktemp("steps"), dict[str, Path]()
    live = root / "live"

    def copy(name: str) -> None:
        if name not in found:
            found[name] = root / name
            shutil.copytree(live, found[name])

    store = begun(live)
    for step in range(STEPS):
        put(store, step)
        if step == 2:
            copy("2")
            files.crash_hook = lambda at: copy(f"inside {at}") if at in ("staged", "committed") else None
        run(live)
        files.crash_hook = None
    copy("end")
    yield found


def test_the_output_does_not_depend_on_it(steps: Mapping[str, Path], tmp_path: Path) -> None:
    """Nor on the batch behind which it is done."""
    store = begun(tmp_path)
    for step in range(STEPS):
        put(store, step)
        made = run(tmp_path)
        if step:
            buckets, tasks = SPREADS[step - 1]
            for query in made.values():
                assert (query.job.buckets, query.job.tasks) == (buckets, tasks)
                shown = query._handle._jsq.explainInternal(False)
                exchanges = set(re.findall(r"Exchange (SinglePartition|hashpartitioning\(bucket#\d+, \d+\))", shown))
                found = {int(x.split()[-1].rstrip(")")) if " " in x else 1 for x in exchanges}
                assert found == {tasks}, shown
            places = {p.parent.name for p in (checkpoint_of(tmp_path) / "runs").glob("*/*")}
            assert places and max(int(x.split("-")[1]) for x in places) < buckets
        if step < len(SPREADS):
            asked(tmp_path, *SPREADS[step])
    assert lines(tmp_path) == lines(steps["end"])
    assert standing(tmp_path) == standing(steps["end"])
    assert any("null" in x for x in lines(tmp_path)["O"][0]), "some rows have waited"


@pytest.mark.parametrize("inside", ["staged", "committed"])
def test_a_batch_that_was_begun(steps: Mapping[str, Path], tmp_path: Path, inside: str) -> None:
    """It is done again in the new spread, whether the output holds it by then or not."""
    root = tmp_path / "s"
    shutil.copytree(steps[f"inside {inside}"], root)
    assert batches.begun(opened(str(checkpoint_of(root))))
    held = TopicStore(opened(root)).end_offsets("O")
    assert (held == TopicStore(opened(steps["2"])).end_offsets("O")) is (inside == "staged")
    asked(root, 6, 3)
    run(root)
    put(TopicStore(opened(root)), 3)
    run(root)
    assert lines(root) == lines(steps["end"])
    assert standing(root) == standing(steps["end"])


def rows_of(folder: Path) -> tuple[object, ...]:
    """What a checkpoint holds, but for the names of its runs."""
    known = checkpoint.load(opened(folder))
    assert known is not None
    last = batches.last_batch(opened(str(folder)), known)
    assert last is not None
    state = {}
    for place, document in state_file.load(opened(str(folder)), last).items():
        runs = CheckpointRuns(opened(folder), place)
        for step, manifest in document["steps"].items():
            for part, kept in manifest.items():
                whole = isinstance(kept, dict) and "runs" in kept
                state[place, step, part] = (
                    [(runs.get(run).rows(), *more) for run, _, _, *more in kept["runs"]] if whole else kept
                )
        state[place, "", ""] = document["clocks"]
    return known.buckets, known.shuffle, known.bucket_ids, state_file.tie(opened(str(folder)), last), state


def start(root: Path) -> None:
    """As a start does, up to where Spark begins."""
    prepared(lower(QUERIES[0]), Store(opened(str(root))), 2, QueryOptions(note=lambda _: None))


@pytest.mark.parametrize("moment", ["2", "inside committed"])
def test_wherever_it_is_killed(
    steps: Mapping[str, Path], tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as it was, or as it is to be, and the next start brings it to its end."""
    unbroken = tmp_path / "unbroken"
    shutil.copytree(steps[moment], unbroken)
    before = rows_of(checkpoint_of(unbroken))
    asked(unbroken, 6, 3)
    start(unbroken)
    want = rows_of(checkpoint_of(unbroken))
    assert want[:2] == (6, 3) and want[3] == before[3] and want != before
    points = list[str]()
    for ends in range(100):
        root = tmp_path / f"{ends}"
        shutil.copytree(steps[moment], root)
        asked(root, 6, 3)
        reached = 0

        def hook(at: str, last: int = ends) -> None:
            nonlocal reached
            reached += 1
            if reached > last:
                points.append(at)
                raise Killed

        monkeypatch.setattr(files, "crash_hook", hook)
        try:
            start(root)
            break
        except Killed:
            pass
        finally:
            monkeypatch.setattr(files, "crash_hook", None)
        folder = checkpoint_of(root)
        if "rescale decided" not in points[: ends + 1]:
            assert rows_of(folder) == before, points[-1]
        if ends % 2:  # the command comes before the next start, with the same wish or another
            told = next(rescale(opened(str(root)), "O", 6, 3))
            assert ("stays as it is" in told) is ("rescale decided" in points)
        start(root)
        assert rows_of(folder) == want, points[-1]
        assert not (folder / checkpoint.RESCALE).exists()
        shutil.rmtree(root)
    assert {"runs written", "rescale decided", "state written", "checkpoint written", "rescale ended"} <= {*points}


def test_what_cannot_be(steps: Mapping[str, Path], tmp_path: Path) -> None:
    root = tmp_path / "s"
    shutil.copytree(steps["2"], root)
    for wish, message in (
        ((3, 1), "3 buckets for 2 partitions of the output"),
        ((4, 5), "5 tasks for 4 buckets"),
        ((None, None), "a rescale needs a number"),
    ):
        with pytest.raises(BraidError, match=message):
            list(rescale(opened(str(root)), "o", *wish))
    with pytest.raises(BraidError, match="no query p has run"):
        list(rescale(opened(str(root)), "p", 4))
    before = {p: p.read_bytes() for p in checkpoint_of(root).rglob("*") if p.is_file()}
    assert next(rescale(opened(str(root)), "o", tasks=64)).startswith(
        "O goes on in 128 buckets and 64 tasks a stage when"
    )
    assert "stays as it is" in next(rescale(opened(str(root)), "o", tasks=2, buckets=4))
    assert before == {p: p.read_bytes() for p in checkpoint_of(root).rglob("*") if p.is_file()}


def test_a_state_of_another_spread_is_refused(steps: Mapping[str, Path], tmp_path: Path) -> None:
    """As a copy would be whose parts were made before and behind a rescale."""
    root = tmp_path / "s"
    shutil.copytree(steps["2"], root)
    asked(root, 8, 2)
    start(root)
    shutil.copy(checkpoint_of(steps["2"]) / checkpoint.NAME, checkpoint_of(root))
    with pytest.raises(BraidError, match=r"it is in 8 buckets, and braid\.json beside it says 4"):
        start(root)
