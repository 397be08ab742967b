"""Commands over a store in a room, killed before and behind every call that they make of it: the old or the new is
left, and the same command does the rest."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("obstore")

from braid.errors import BraidError
from braid.face.reset import remove_topic, reset
from braid.face.verify import verify
from braid.stage import checkpoint
from braid.store import opened
from braid.store.objects import BucketStore
from braid.testing.on_spark import shared_session
from braid.topics.interface import open_topics, store_of
from braid.topics.store_value import Store
from objects.faulty import Faulty, faulty
from objects.test_checkpoints import QUERIES, feed, lines, run

pytestmark = [pytest.mark.spark, pytest.mark.objects, pytest.mark.operations]

CALLS = ("create", "put", "get", "range", "size", "delete", "list")
TABLE = 1  # of `QUERIES`
ROOT = "s3://memory/shop"


class Died(BaseException):
    pass


@contextlib.contextmanager
def dying(left: int) -> Iterator[Callable[[], int]]:
    """A process that dies when it has made and finished so many calls of rooms, each counted twice."""
    count = 0

    def step() -> None:
        nonlocal count
        if count == left:
            raise Died
        count += 1

    def counted(call: Any) -> Any:
        def made(*args: Any) -> Any:
            step()
            found = call(*args)
            found = iter(list(found)) if call.__name__ == "list" else found
            step()
            return found

        return made

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(BucketStore, name, counted(getattr(BucketStore, name)))
        yield lambda: count


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    """A store whose table has read two steps; its topic `r` nobody reads."""
    environment = shared_session().sparkContext.environment
    before = dict(environment)
    with faulty() as server, pytest.MonkeyPatch.context() as patch:
        ours = {**server.environment, "BRAID_CACHE": str(tmp_path_factory.mktemp("cache"))}
        for name, value in ours.items():
            patch.setenv(name, value)
        environment.update(ours)
        for step in range(2):
            feed(ROOT, step)
            run(ROOT, TABLE)
        yield server
        environment.clear()
        environment.update(before)


def killed(kept: Faulty, command: Callable[[], Any]) -> Iterator[bool]:
    """A command that is killed at each of its calls, on the same store again and again; whether it came to its end."""
    held, at, done = copy.deepcopy(kept.held), 0, False
    while not done:
        kept.held = copy.deepcopy(held)
        shutil.rmtree(os.environ["BRAID_CACHE"], ignore_errors=True)  # it knows of what has not been
        store_of.cache_clear()
        with dying(at), contextlib.suppress(Died):
            list(command())
            done = True
        yield done
        at += 1
    kept.held = held
    assert at > 20


def test_a_reset(kept: Faulty) -> None:
    name = QUERIES[TABLE].name
    folder, want, anew = f"{ROOT}/checkpoints/{name}", lines(ROOT, TABLE), 0
    for number, done in enumerate(killed(kept, lambda: reset(Store(opened(ROOT)), name))):
        try:
            gone = checkpoint.load(opened(folder)) is None
            if not gone:
                assert lines(ROOT, TABLE) == want and not _wrong()
        except BraidError as e:
            gone = False
            assert "reset" in f"{e} {e.hint}", "nobody goes on with what is half gone"
        if not gone:
            list(reset(Store(opened(ROOT)), name))
        assert (
            checkpoint.load(opened(folder)) is None
            and not open_topics(Store(opened(ROOT))).exists(name)
            and not _wrong()
        )
        if number % 19 == 0 or done:
            anew += 1
            run(ROOT, TABLE)
            assert lines(ROOT, TABLE) == want
    assert anew > 2


def _wrong() -> list[BraidError]:
    return [x for x in verify(opened(ROOT)) if isinstance(x, BraidError)]


def test_a_topic_goes(kept: Faulty) -> None:
    def found() -> list[str] | None:
        topics = open_topics(Store(opened(ROOT)))
        if not topics.exists("r"):
            return None
        return [x for p, end in enumerate(topics.end_offsets("r")) for x in topics.read("r", p, 0, end)["_line"]]

    want = found()
    assert want
    for _ in killed(kept, lambda: remove_topic(Store(opened(ROOT)), "r")):
        with contextlib.suppress(BraidError):  # its end is begun, and who looks does the rest
            assert found() in (want, None)
        if open_topics(Store(opened(ROOT))).exists("r"):
            list(remove_topic(Store(opened(ROOT)), "r"))
        topics = open_topics(Store(opened(ROOT)))
        assert not topics.exists("r")
        topics.create("r", 3)
        assert found() == [] and topics.partitions("r") == 3
