"""The cause log in an object store: records ride in the state, and become an object where they are many."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("obstore")

from braid.stage import cause_log, state_file
from braid.stage.cause_log import FOLDER, CauseLog, copied, read
from braid.stage.state_file import Held, Tie
from braid.store import ObjectStore, opened
from objects.faulty import Faulty
from test_cause_log import RUN, every, pieces

URL = "s3://memory/p/checkpoints/O"


def goes_on(place: ObjectStore, batches: Sequence[int], rows: int = 10) -> list[str]:
    """A process that does some batches; what the last has to save."""
    log, saved = CauseLog(place, RUN), list[str]()
    for batch in batches:
        saved = [*log.add(batch, pieces(batch, rows))]
        state_file.save(place, batch, {}, Tie(str(batch), None), held=Held(causes=saved))
    state_file.forgotten()
    return saved


def told(place: ObjectStore, upto: int, rows: int = 10) -> list[tuple[int, int]]:
    found, made = read(place, RUN), list[tuple[int, int]]()
    assert not found.spoilt
    while (cause := found.cause(0, len(made), upto)) is not None:
        made.append(divmod(cause.completed.offset, 1000))
    return made


def objects(place: ObjectStore) -> list[str]:
    return sorted(name for name, _ in place.list(FOLDER))


def test_small_batches_ask_for_nothing(memory: Faulty) -> None:
    place = opened(URL)
    log = CauseLog(place, RUN)
    log.add(0, pieces(0))
    before = len(memory.asked)
    for batch in range(1, 90):
        log.add(batch, pieces(batch))
    assert len(memory.asked) == before
    goes_on(place, range(5))
    assert objects(place) == [] and told(place, 4) == every(4, 3, 2, 1, 0)


def test_many_become_an_object(memory: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cause_log, "MANY", 4)
    place = opened(URL)
    assert len(goes_on(place, range(3))) == 3
    assert len(goes_on(place, range(3, 6))) == 2  # another process
    assert objects(place) == [f"{FOLDER}/{0:020d}"] and told(place, 5) == every(5, 4, 3, 2, 1, 0)
    assert len(goes_on(place, [5])) == 2  # done again
    assert told(place, 5) == every(5, 4, 3, 2, 1, 0)
    assert len(goes_on(place, range(6, 9))) == 1
    assert objects(place) == [f"{FOLDER}/{n:020d}" for n in (0, 4)] and told(place, 8) == every(*range(8, -1, -1))


def test_a_large_one_is_an_object_at_once(memory: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cause_log, "HELD", 100)
    place = opened(URL)
    assert goes_on(place, range(3), 900) == []
    assert objects(place) == [f"{FOLDER}/{n:020d}" for n in range(3)]
    assert told(place, 2, 900) == every(2, 1, 0, rows=900)


def test_a_kill_behind_the_object(memory: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written once more, and holds the same."""
    monkeypatch.setattr(cause_log, "MANY", 3)
    place = opened(URL)
    goes_on(place, range(2))
    CauseLog(place, RUN).add(2, pieces(2))
    before = dict(memory.held)
    assert told(place, 2) == every(2, 1, 0)
    goes_on(place, [2])
    assert {n: x[0] for n, x in memory.held.items() if FOLDER in n} == {
        n: x[0] for n, x in before.items() if FOLDER in n
    }
    assert told(place, 2) == every(2, 1, 0)


def test_the_oldest_objects_go(memory: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cause_log, "MANY", 1)
    monkeypatch.setattr(cause_log, "FILES", 3)
    place = opened(URL)
    goes_on(place, range(10))
    assert len(objects(place)) == 3 and told(place, 9) == every(9, 8, 7)


def test_copies(memory: Faulty, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """To a folder and back."""
    monkeypatch.setattr(cause_log, "MANY", 3)
    place, folder, back = opened(URL), opened(str(tmp_path)), opened("s3://memory/q/checkpoints/O")
    goes_on(place, range(5))
    assert copied(place, folder, RUN) == []
    assert told(folder, 4) == every(4, 3, 2, 1, 0)
    held = Held(causes=copied(folder, back, RUN))
    state_file.save(back, 4, {}, Tie("4", None), held=held)
    assert told(back, 4) == every(4, 3, 2, 1, 0)
