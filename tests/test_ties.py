"""Store, checkpoint and output of different moments: refused by name before anything is written, or right.

A query runs in steps on Spark; after each step, and between a batch's commit in the output and Spark's, everything is
copied. Then parts of different copies are put together.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import effort

pytest.importorskip("pyspark")

from braid.errors import BraidError
from braid.stage import lineage
from braid.store import opened
from braid.topics import TopicStore, files
from cli_help import braid
from moments import PARTS, STATEMENTS, copied, files_of, moments, place, put, rows_of, run, start

pytestmark = [pytest.mark.spark, pytest.mark.operations]


class Pairs:
    """Parts of different moments put together, and what comes of them."""

    def __init__(self, root: Path, to_files: bool) -> None:
        self.root, self.to_files = root, to_files
        self.moments = moments(root, to_files)
        self.sound: dict[int, list[Counter[str]]] = {}
        self.made = 0

    def together(self, **of: int) -> Path:
        """A store with each part as it stood at a moment; `inputs`: both topics that are read."""
        self.made += 1
        root = self.root / f"pair{self.made}"
        (root / "s" / "topics").mkdir(parents=True)
        for part in PARTS:
            copied(self.moments[of[part] if part in of else of["inputs"]], root, (part,))
        return root

    def start(self, root: Path) -> BraidError | None:
        """Why it is refused; else it has run to the end."""
        if self.to_files:
            place(root, "sink").mkdir(parents=True, exist_ok=True)
        before = files_of(root)
        try:
            run(root, self.to_files)
        except BraidError as e:
            assert files_of(root) == before, "nothing is written before it is refused"
            return e
        return None

    def right(self, root: Path, inputs: int) -> bool:
        """Whether the output is what comes of these inputs; and, since its state may not be, of more behind them."""
        return self._rows(root) == self._sound(inputs)

    def _sound(self, inputs: int) -> list[Counter[str]]:
        if inputs not in self.sound:
            fresh = self.root / f"sound{inputs}"
            copied(self.moments[inputs], fresh, ("l", "r"))
            assert self.start(fresh) is None
            self.sound[inputs] = self._rows(fresh)
        return self.sound[inputs]

    def _rows(self, root: Path) -> list[Counter[str]]:
        found = [rows_of(root, self.to_files)]
        more = [{"key": k, "value": {"V": "more"}, "timestamp": 20_000 + k} for k in range(4)]
        TopicStore(opened(root / "s")).append("l", more)  # each key of the table is asked for
        return found if self.start(root) is not None else [*found, rows_of(root, self.to_files)]

    def refused(self, **of: int) -> str:
        error = self.start(self.together(**of))
        assert error is not None, "it was not refused"
        assert error.hint
        return error.message

    def goes_on(self, **of: int) -> None:
        root = self.together(**of)
        assert (error := self.start(root)) is None, error
        assert self.right(root, of["inputs"])


@pytest.fixture(scope="module", params=[False, True], ids=["topic", "files"])
def pairs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    yield Pairs(tmp_path_factory.mktemp("pairs"), request.param)


# Moments: 0 put, 1 run, 2 put, 3 run, 4 put, 5 and 6 inside the batch, 7 run; from 3 on with other records 8 to 13.
FIRST, SECOND, STAGED, INSIDE, THIRD, OTHER_PUT, OTHER, LAST = 1, 3, 5, 6, 7, 8, 9, 13


def test_parts_of_one_moment_go_on(pairs: Pairs) -> None:
    assert len(pairs.moments) == LAST + 1
    for n in (0, FIRST, STAGED, INSIDE, THIRD, LAST) if effort.LAW else (0, INSIDE, LAST):
        pairs.goes_on(inputs=n, o=n, checkpoint=n, sink=n)
    pairs.goes_on(inputs=THIRD, o=SECOND, checkpoint=SECOND, sink=SECOND)  # what came since is read


def test_a_checkpoint_of_just_before(pairs: Pairs) -> None:
    """The next batch reads what it read before, and is found written."""
    pairs.goes_on(inputs=THIRD, o=THIRD, checkpoint=SECOND, sink=THIRD)


def test_a_batch_that_nobody_has_seen(pairs: Pairs) -> None:
    """It was begun, and what it was to read is not there: it was not begun."""
    pairs.goes_on(inputs=SECOND, o=SECOND, checkpoint=STAGED, sink=SECOND)
    pairs.goes_on(inputs=OTHER_PUT, o=SECOND, checkpoint=STAGED, sink=SECOND)
    pairs.refused(inputs=SECOND, o=INSIDE, checkpoint=STAGED, sink=INSIDE)


def test_an_older_checkpoint(pairs: Pairs) -> None:
    said = pairs.refused(inputs=THIRD, o=THIRD, checkpoint=FIRST, sink=THIRD)
    assert "is older than" in said and "it ends with batch 0, and batch 2 is there" in said
    said = pairs.refused(inputs=OTHER, o=THIRD, checkpoint=SECOND, sink=THIRD)
    assert "is older than" in said and "it ends with batch 1, and batch 2 is there" in said
    pairs.refused(inputs=LAST, o=LAST, checkpoint=OTHER, sink=LAST)


def test_an_older_output(pairs: Pairs) -> None:
    said = pairs.refused(inputs=THIRD, o=SECOND, checkpoint=THIRD, sink=SECOND)
    assert "is older than the checkpoint" in said and "it holds no batch behind 1, and batch 2 was written" in said


def test_an_output_that_is_gone(pairs: Pairs) -> None:
    said = pairs.refused(inputs=THIRD, o=0, checkpoint=THIRD, sink=0)
    assert "holds nothing of this query, and batch 2 was written" in said or "json files in" in said


def test_a_checkpoint_that_is_gone(pairs: Pairs) -> None:
    said = pairs.refused(inputs=THIRD, o=THIRD, checkpoint=0, sink=THIRD)
    assert "is gone" in said or "holds the results of another run" in said


def test_inputs_of_another_history(pairs: Pairs) -> None:
    said = pairs.refused(inputs=OTHER, o=THIRD, checkpoint=THIRD, sink=THIRD)
    assert "holds other records than those that O has read" in said and "of the topic l" in said
    said = pairs.refused(inputs=SECOND, o=THIRD, checkpoint=THIRD, sink=THIRD)
    assert "and O has read up to" in said


def test_an_output_of_another_history(pairs: Pairs) -> None:
    said = pairs.refused(inputs=THIRD, o=OTHER, checkpoint=THIRD, sink=OTHER)
    assert "batch 2 in" in said and "was made of other records" in said


def test_a_state_of_another_history(pairs: Pairs) -> None:
    root = pairs.together(inputs=THIRD, o=THIRD, checkpoint=THIRD, sink=THIRD)
    state = place(root, "checkpoint") / "state"
    shutil.rmtree(state)
    shutil.copytree(place(pairs.moments[OTHER], "checkpoint") / "state", state)
    for run_ in (place(pairs.moments[OTHER], "checkpoint") / "runs").rglob("*.arrow"):
        target = place(root, "checkpoint") / run_.relative_to(place(pairs.moments[OTHER], "checkpoint"))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(run_, target)
    error = pairs.start(root)
    assert error is not None and "batch 2 in " in error.message
    assert "was made of other records than in the checkpoint" in error.message


@pytest.mark.parametrize(("o", "checkpoint"), [(0, 7), (7, 0), (7, 1)])
def test_a_file_is_refused_before_its_statements(pairs: Pairs, o: int, checkpoint: int) -> None:
    """Also an INSERT that stands before the query is not done then; `braid check` says the same."""
    if pairs.to_files:
        pytest.skip("the sink of a file's query is named on the command line")
    root = pairs.together(inputs=7, o=o, checkpoint=checkpoint)
    (root / "q.sql").write_text(STATEMENTS + "INSERT INTO l (ROWTIME, k, v) VALUES (90000, 1, 'new');")
    before = files_of(root)
    said = [braid(*words, root / "q.sql", "--store", root / "s") for words in (("check",), ("run", "--until-idle"))]
    assert [x.code for x in said] == [1, 1] and "O cannot go on" in said[0].out
    assert "starting Spark" not in said[1].err and said[1].err in said[0].err, said
    assert files_of(root) == before


def test_a_driver_that_sleeps_finds_its_successor(tmp_path: Path) -> None:
    """One is stopped before its batch is published, another goes on from its checkpoint; then the first wakes."""
    asleep, wake = threading.Event(), threading.Event()

    def sleep(at: str) -> None:
        if at == "staged" and threading.current_thread() is not threading.main_thread():
            asleep.set()
            assert wake.wait(120)

    store = TopicStore(opened(tmp_path / "s"))
    store.create("l", 1)
    store.create("r", 1)
    put(store, 0)
    running = start(tmp_path, False)
    try:
        running.await_idle()
        files.crash_hook = sleep
        put(store, 1)
        assert asleep.wait(60)
        files.crash_hook = None
        put(store, 2)
        (tmp_path / "q.sql").write_text(STATEMENTS)
        successor = [sys.executable, "-m", "braid", "run", "q.sql", "--store", "s", "--until-idle", "--quiet"]
        for n in (3, 4):
            done = subprocess.run(successor, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr
            put(store, n)
    finally:
        files.crash_hook = None
        wake.set()
    with pytest.raises(
        BraidError, match=r"the query O was taken over by process \d+ on .*: this run ends, nothing is lost"
    ):
        running.await_termination(60)
    running.stop()
    run(tmp_path, False)
    fresh = tmp_path / "fresh"
    copied(tmp_path, fresh, ("l", "r"))
    run(fresh, False)
    assert rows_of(tmp_path, False) == rows_of(fresh, False)


@pytest.mark.law
@pytest.mark.timeout(1800)
def test_any_moments_are_refused_or_right(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of those that are right at least nine in ten are not refused."""
    rng = random.Random(7)
    right_and_accepted = refused = 0
    right_and_refused = list[tuple[dict[str, int], str]]()
    for _ in range(40):
        some = rng.sample(range(len(pairs.moments)), 2)
        inputs, o, checkpoint = (rng.choice(some) for _ in range(3)) if rng.random() < 0.5 else (*some[:1] * 2, some[1])
        of = {"inputs": inputs, "o": o, "checkpoint": checkpoint, "sink": o}
        root = pairs.together(**of)
        error = pairs.start(root)
        if error is None:
            assert pairs.right(root, inputs), of
            right_and_accepted += 1
            continue
        refused += 1
        with monkeypatch.context() as patch:
            for check in ("check_new", "check_inputs", "check_output"):
                patch.setattr(lineage, check, lambda *_: None)
            try:
                if pairs.start(root) is None and pairs.right(root, inputs):
                    right_and_refused.append((of, error.message))
            except Exception:
                continue  # it died
    assert refused and right_and_accepted >= 9 * len(right_and_refused), (right_and_accepted, right_and_refused)
