"""What a task of a query shuffles is the same, byte for byte, when it is done again: Spark compares it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from attempts import QUERIES

PROGRAM = Path(__file__).with_name("attempts.py")


def attempt(seed: int) -> list[list[str]]:
    """What the tasks of each query shuffle."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "POLARS_MAX_THREADS": "1"}
    words = [sys.executable, str(PROGRAM), str(seed), *QUERIES]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [part.splitlines() for part in done.stdout.split("\n\n")]


def test_two_attempts_shuffle_the_same_bytes() -> None:
    """Of plans of several stages: in another process, with input in another order, and another seed of Python's
    hashes."""
    first, second = attempt(1), attempt(2)
    assert len(first) == len(QUERIES)
    assert all(len(x) > 6 and len(x[-1]) > 1000 for x in first)
    assert first == second
