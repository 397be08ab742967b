"""How much a test with random inputs does: a share of its examples in `make test`, all of them with `--law`.

In: the option `--law`, told by `conftest.py` before any test is read. Out: numbers.
Rule: only how many inputs are tried differs, never what must hold for each.
"""

from __future__ import annotations

LAW = False


def examples(whole: int) -> int:
    """How many of `whole` examples to try."""
    return whole if LAW else max(whole // 4, 8)
