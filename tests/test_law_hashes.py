"""The law where most keys share a hash: what finds rows by it looks at their keys, too.

In: the queries and histories of the other laws. Out: the reference's output, as there.
Rule: only the hash differs; of 64 bits, two keys share one once in some billions.
"""

from __future__ import annotations

import polars as pl
import pytest

import test_law
import test_law_epochs
import test_law_keyed
import test_law_sliding
from braid.operators import rekey
from effort import some

LAWS = [
    pytest.param(law.check, shape, id=f"{law.__name__.removeprefix('test_')}-{shape}")
    for law in (test_law, test_law_epochs, test_law_keyed, test_law_sliding)
    for shape in law.SHAPES
]


@pytest.fixture(autouse=True)
def _sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rekey, "key_hash", lambda text: text.str.len_bytes().cast(pl.UInt64) % 2)


@pytest.mark.heavy
@pytest.mark.parametrize(("check", "shape"), some(LAWS, 3))
def test_law_of_shared_hashes(check: object, shape: str) -> None:
    assert callable(check)
    check(shape, 1, whole=False)


@pytest.mark.law
@pytest.mark.parametrize(("check", "shape"), LAWS)
def test_law_of_shared_hashes_at_length(check: object, shape: str) -> None:
    assert callable(check)
    for seed in range(2000, 2004):
        check(shape, seed)
