"""Where batches ended: every one of them can be read again, whatever tore the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import BraidError
from braid.stage.offset_log import NAME, OffsetLog, read
from braid.store import opened

PLACES = st.dictionaries(st.sampled_from(["0/0", "0/1", "1/0"]), st.integers(0, 9), min_size=1)
MORE = st.fixed_dictionaries(
    {}, optional={"ended": st.lists(st.just("0/0"), max_size=1), "early": PLACES, "idle": st.just(["1/0"])}
)


def documents(moves: list[tuple[dict[str, int], dict[str, Any]]]) -> list[dict[str, Any]]:
    made, at = [], dict[str, int]()
    for batch, (moved, more) in enumerate(moves):
        at = {place: at.get(place, 0) + moved.get(place, 0) for place in {**at, **moved}}
        made.append({"batch": batch, "next": dict(at), **more})
    return made


@settings(deadline=None)
@given(st.lists(st.tuples(PLACES, MORE), min_size=1, max_size=12), st.data())
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[dict[str, int], dict[str, Any]]], data: st.DataObject
) -> None:
    """Also where processes died: inside a line, or behind one whose batch was done again."""
    folder, made = tmp_path_factory.mktemp("cuts"), documents(moves)
    log, n = OffsetLog(opened(str(folder))), 0
    while n < len(made):
        log.add({**made[n], "plan": "p", "seen": {"t/0": [n, 1]}})
        n += 1
        match data.draw(st.sampled_from(["on", "on", "again", "torn"])):
            case "again":
                log, n = OffsetLog(opened(str(folder))), n - 1 if data.draw(st.booleans()) else n
            case "torn":
                text = (folder / NAME).read_bytes()
                (folder / NAME).write_bytes(text[: data.draw(st.integers(text[:-1].rfind(b"\n") + 1, len(text) - 1))])
                log, n = OffsetLog(opened(str(folder))), n - 1
    assert list(read(opened(str(folder)), len(made) - 1)) == made


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(BraidError, match="does not say where batch 0 ended"):
        read(opened(str(tmp_path)), 0)
    OffsetLog(opened(str(tmp_path))).add({"batch": 3, "next": {}})
    with pytest.raises(BraidError, match="does not say where batch 0 ended"):
        read(opened(str(tmp_path)), 3)


def test_a_batch_costs_what_it_moved(tmp_path: Path) -> None:
    log, at = OffsetLog(opened(str(tmp_path))), {f"0/{p}": 0 for p in range(1000)}
    for batch in range(100):
        at["0/7"] += 1
        log.add({"batch": batch, "next": dict(at), "ended": [], "idle": [], "plan": "p"})
    first, *rest = (tmp_path / NAME).read_bytes().splitlines()
    assert len(first) > 9000 and max(map(len, rest)) < 60
