"""The file of a batch's state holds what has changed, and leads to the files that have the rest."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from braid.errors import BraidError
from braid.stage import state_file
from braid.stage.state_file import LINKS, Before
from braid.store import opened

BUCKETS = 40
Documents = dict[str, dict[str, Any]]


def clocks(batch: int) -> dict[str, Any]:
    return {"high": [[0, 0, p, 1000 * batch + p] for p in range(30)], "idle": [], "now": []}


def moved(before: Documents, batch: int, rng: random.Random) -> Documents:
    """A few buckets with other runs, all of stage 0 with other clocks but one that nothing has reached."""
    made = dict(before)
    for bucket in range(BUCKETS):
        known = made.get(f"0/{bucket}", {"format": 2, "clocks": {}, "steps": {}})
        late = batch > 3 and bucket == 7
        made[f"0/{bucket}"] = {**known, "clocks": known["clocks"] if late else clocks(batch)}
    for bucket in rng.sample(range(BUCKETS), 2):
        for stage in "01":
            runs = [[f"{batch}-{bucket}", rng.randrange(9), 10]]
            known = made.get(f"{stage}/{bucket}", {"format": 2, "clocks": {"high": [], "idle": [], "now": []}})
            made[f"{stage}/{bucket}"] = {**known, "steps": {"3": {"left": {"runs": runs}}}}
    return made


def history(folder: str, batches: int, seed: int = 1) -> list[Documents]:
    """States as a driver saves them, one after the other."""
    rng, states, links = random.Random(seed), [dict[str, dict[str, Any]]()], list[int]()
    for batch in range(batches):
        before = Before(states[-1], links)
        states.append(moved(states[-1], batch, rng))
        assert state_file.save(opened(folder), batch, states[-1], reads=[f"{batch}"], before=before)
        state_file.tell_published(opened(folder), batch)
        state_file.forget(opened(folder), batch - 1, links)
        links = [*before.chain(), batch]
    return states


def size(folder: str, batch: int) -> int:
    return Path(state_file.path_of(opened(folder), batch)).stat().st_size


@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_is_what_was_saved(tmp_path: Path, seed: int) -> None:
    states = history(str(tmp_path), 3 * LINKS, seed)
    last = len(states) - 2
    state_file._read.cache_clear()  # as another process
    for batch in (last, last - 1):
        assert state_file.load(opened(str(tmp_path)), batch) == states[batch + 1]
        texts = state_file.texts(opened(str(tmp_path)), batch)
        assert {place: json.loads(texts[place]) for place in texts} == states[batch + 1]
        assert all(texts.get(place) == texts[place] for place in texts) and texts.get("9/9") is None
    assert state_file.latest(opened(str(tmp_path))) == (last, states[-1])


def test_a_batch_writes_what_has_changed(tmp_path: Path) -> None:
    """Whatever the number of buckets; now and then all of it, and then the files before it go."""
    folder = str(tmp_path)
    history(folder, LINKS + 1)
    whole = size(folder, LINKS)
    history(folder, 2 * LINKS)
    assert size(folder, LINKS + 5) < whole / 2
    assert state_file.batches(opened(folder)) == [*range(LINKS, 2 * LINKS)]
    assert list(state_file.links_of(opened(folder), 2 * LINKS - 1)) == [*range(LINKS, 2 * LINKS)]
    history(folder, 2 * LINKS + 1)
    assert state_file.batches(opened(folder))[0] == LINKS, "the batch before the last may still be asked for"
    history(folder, 2 * LINKS + 2)
    assert state_file.batches(opened(folder)) == [2 * LINKS, 2 * LINKS + 1]


def test_a_file_whose_rest_is_missing_or_torn_is_refused(tmp_path: Path) -> None:
    folder = str(tmp_path)
    states = history(folder, 8)
    path = Path(state_file.path_of(opened(folder), 4))
    kept = path.read_bytes()
    for broken in (None, kept[:-4]):
        path.unlink() if broken is None else path.write_bytes(broken)
        state_file._read.cache_clear()
        with pytest.raises(BraidError, match=r"4\.json is damaged"):
            state_file.load(opened(folder), 7)
        path.write_bytes(kept)
    state_file._read.cache_clear()
    assert state_file.load(opened(folder), 7) == states[-1]


def test_a_file_that_was_written_anew_is_not_the_rest_of_another(tmp_path: Path) -> None:
    """As after a rescale that was stopped: what was built on the state before is no state."""
    folder = str(tmp_path)
    states = history(folder, 8)
    state_file.replace(opened(folder), 6, states[7], None, ["6"], 4)
    with pytest.raises(BraidError, match="another one than it builds on"):
        state_file.load(opened(folder), 7)
    assert state_file.reads(opened(folder), 6) == ["6"] and state_file.load(opened(folder), 6) == states[7]


def test_files_of_the_version_before_are_read(tmp_path: Path) -> None:
    folder, document = str(tmp_path), {"format": 2, "clocks": clocks(1), "steps": {}}
    line = json.dumps({"format": 1, "batch": 0, "state": {"0/0": document}}).encode()
    (tmp_path / "state").mkdir()
    (tmp_path / "state/0.json").write_bytes(state_file.sealed(line))
    assert state_file.load(opened(folder), 0) == {"0/0": document}
    assert json.loads(state_file.texts(opened(folder), 0)["0/0"]) == document


def test_what_tasks_say_is_what_they_keep() -> None:
    rng, before = random.Random(5), dict[str, dict[str, Any]]()
    for batch in range(6):
        now = moved(before, batch, rng)
        halves = [{p: d for p, d in now.items() if hash(p) % 2 == half} for half in (0, 1)]
        said = []
        for mine in halves:
            same = {p for p, d in mine.items() if d["steps"] == before.get(p, {"steps": None})["steps"]}
            said.append(json.loads(json.dumps(state_file.said_of(mine, same))))
        assert state_file.changed(before, said) == now
        before = now
