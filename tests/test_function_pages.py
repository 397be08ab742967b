"""Every function of a dialect stands on a case page, with NULL, empty values, limits and errors.

Rule: what the values are is the business of the pages, which `test_cases.py` runs; here is that none is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from braid.expr.aggregates import AGGREGATES, LENSES
from braid.expr.functions import by_name
from braid.testing.cases import blocks

CASES = Path(__file__).parent / "cases"
PAGES = {"ksqldb": "ksqldb", "lenses": "lenses/functions", "sqlstream": "sqlstream/functions"}
OWN = {"lenses": tuple(LENSES), "ksqldb": tuple(AGGREGATES)}
_OTHER = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|--[^\n]*")
_CALL = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)\s*\(")


@cache
def called(folder: str) -> frozenset[str]:
    """The names that are called in what pages accept."""
    return frozenset(name.upper() for text in _statements(folder) for name in _CALL.findall(_OTHER.sub("", text)))


def _statements(folder: str) -> Iterator[str]:
    for page in sorted((CASES / folder).rglob("*.md")):
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.kind in ("sql", "query"):
                yield block.text


@pytest.mark.parametrize("dialect", PAGES)
def test_every_function_is_called_on_a_page(dialect: str) -> None:
    names = {*by_name(dialect), *OWN.get(dialect, ())}
    assert names - called(PAGES[dialect]) == set(), "what no page calls"
