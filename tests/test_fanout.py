"""Few rows that meet many: results come in pieces of bounded size, and pairs in rounds, with the same rows in the same
order."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

import keyed_queries
import test_law
import test_law_epochs
import test_law_keyed
import test_law_sliding
from braid.operators import matches, multiset, pairing

pytestmark = pytest.mark.heavy

STREAMS = ["ss", "ss-ss", "ss-ss-other", "ss-st", "ss-ss-right", "ss-aggregate"]


def changes_nothing(monkeypatch: pytest.MonkeyPatch, most: int, piece: int, few: bool) -> None:
    """The law, with so many pairs made at once and so many results in a piece."""
    monkeypatch.setattr(matches, "MOST", most)
    monkeypatch.setattr(multiset, "MOST", most)
    monkeypatch.setattr(pairing, "PIECE_ROWS", piece)
    seeds = count(50 + most + piece)
    for shape in ["ss", "ss", "ss-st"] if few else STREAMS:
        test_law.check(shape, next(seeds))
    for shape in ["clocks", "remembers"] if few else keyed_queries.SHAPES:
        test_law_keyed.check(shape, 60 + most + piece)
    for shape in ["regular"] if few else ["regular", "regular-regular", "bounded"]:
        test_law_epochs.check(shape, 70 + most + piece)
    for shape in ["sliding", "sliding-rows"] if few else test_law_sliding.SHAPES:
        test_law_sliding.check(shape, 90 + most + piece)


def test_pieces_and_rounds_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    changes_nothing(monkeypatch, 1, 1, few=True)


@pytest.mark.law
@pytest.mark.parametrize(("most", "piece"), [(1, 1), (3, 2), (1_000_000, 1), (2, 250_000)])
def test_pieces_and_rounds_change_nothing_at_length(monkeypatch: pytest.MonkeyPatch, most: int, piece: int) -> None:
    changes_nothing(monkeypatch, most, piece, few=False)


def measured(*words: object) -> dict[str, int]:
    """What `fanout.py` says."""
    command = [sys.executable, Path(__file__).with_name("fanout.py"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return {name: int(x) for name, x in json.loads(done.stdout).items()}


needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from /proc")


@needs_proc
def test_a_crowd_is_made_in_rounds() -> None:
    """3,000 rows of one key meet 3,000, and 3,000 of the 9 million pairs pass: all at once they take 2 GB."""
    said = measured("crowd", 3000)
    assert said["results"] == 3000
    assert said["more"] < 600, said


@needs_proc
def test_few_rows_of_many_bytes() -> None:
    """30 rows of 500 kB meet 30: their 900 results are 900 MB, which took 4.7 GB when they were made at once."""
    said = measured("wide", 30)
    assert said["results"] == 900
    assert said["before"] + said["more"] < 1024, said


@needs_proc
@pytest.mark.parametrize(
    ("shape", "results"),
    [
        pytest.param("sliding", 109_850, marks=pytest.mark.law),
        ("interval", 109_850),
        pytest.param("updates", 10_000, marks=pytest.mark.law),
    ],
)
def test_hot_keys_take_what_they_meet(shape: str, results: int) -> None:
    """10,000 rows a side of five keys, each of which meets some ten others: all pairs of a key would be 20 million."""
    said = measured(shape, 10_000)
    assert said["results"] == results
    assert said["more"] < 300, said


@needs_proc
@pytest.mark.parametrize("shape", ["sliding", "within", "interval", "epoch"])
def test_hot_keys_in_small_pieces_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    """From the operator to the writer, over the exchange between them: some 2,000 results at once, and in a dozen
    pieces."""
    import fanout

    whole = fanout.hot(shape, 200)
    monkeypatch.setattr(pairing, "PIECE_ROWS", 200)
    for module in (matches, multiset):
        monkeypatch.setattr(module, "MOST", 400)
    monkeypatch.setattr(fanout.stage, "PIECE", 200)
    cut = fanout.hot(shape, 200)
    assert (cut["results"], cut["digest"]) == (whole["results"], whole["digest"])
    assert cut["largest"] < whole["largest"] / 4


@needs_proc
@pytest.mark.law
def test_one_epoch_takes_what_it_meets() -> None:
    """2,749,850 results of one epoch, such as rows of files that join the first time: at once they take 1.7 GB."""
    said = measured("epoch", 250_000)
    assert said["results"] == 2_749_850
    assert said["more"] < 1000, said


@needs_proc
@pytest.mark.law
def test_one_row_meets_a_million() -> None:
    """In pieces the results leave the stage as they leave it whole, and take a fraction of the memory."""
    said, whole = measured("one", 1_000_000), measured("one", 1_000_000, 10**9, 10**9)
    assert said["results"] == 1_000_000 and said["digest"] == whole["digest"]
    assert said["largest"] < 4 << 20
    assert said["more"] < whole["more"] / 2, (said, whole)
