"""A table of very many rows: the first are seen before the last are made, and columns stay where they were."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from braid.face.tabular import AT_ONCE, print_table


def test_rows_come_as_they_are_made() -> None:
    out, seen = io.StringIO(), list[int]()

    def rows() -> Iterator[tuple[int, str]]:
        for n in range(2 * AT_ONCE + 5):
            if n == AT_ONCE + 1:
                seen.append(out.getvalue().count("\n"))
            yield n, "x" * (3 if n != 7 else 20)

    print_table(("number", "text"), rows(), out)
    lines = out.getvalue().splitlines()
    assert seen == [AT_ONCE + 1] and len(lines) == 2 * AT_ONCE + 6
    assert lines[0] == "number  text" and lines[1] == "0       xxx" and lines[-1] == "2004    xxx"


def test_none_and_wider_ones_later() -> None:
    out = io.StringIO()
    print_table(("a", "b"), [], out)
    assert out.getvalue() == "a  b\n"
    out = io.StringIO()
    print_table(("a", "b"), [(1, 1)] * AT_ONCE + [(10**9, 1)] + [(1, 1)] * AT_ONCE, out)
    lines = out.getvalue().splitlines()
    assert lines[1] == "1  1" and lines[AT_ONCE + 1] == f"{10**9}  1" and lines[-1].split() == ["1", "1"]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_text_is_shown_as_it_is(terminal: bool) -> None:
    """Neither a name of a picture nor of a style is obeyed."""
    made = io.StringIO()
    made.isatty = lambda: terminal  # type: ignore[method-assign]
    print_table(["a", "b"], [(":smile: [bold]x[/bold]", "日本")], made)
    assert ":smile: [bold]x[/bold]  日本" in made.getvalue()
