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


def attempt(name: str, seed: int) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "POLARS_MAX_THREADS": "1"}
    words = [sys.executable, str(PROGRAM), name, str(seed)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", QUERIES)
def test_two_attempts_shuffle_the_same_bytes(name: str) -> None:
    """Of plans of several stages: in another process, with input in another order, and another seed of Python's
    hashes."""
    first, second = attempt(name, 1), attempt(name, 2)
    assert len(first) > 6 and len(first[-1]) > 1000
    assert first == second
