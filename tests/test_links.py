"""Every link of every page leads somewhere, offline; every page is in the list that the site's navigation is made of.

In: all Markdown of the repository. Out: links with nothing behind them, pages that no list has.
Rule: what is a link, and which anchor a heading has, is as on GitHub. Addresses elsewhere are not asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from pages import PAGES, ROOT

MARKDOWN = MarkdownIt("commonmark").enable("table")
TESTS = {p.relative_to(ROOT).as_posix(): p for p in sorted((ROOT / "tests").rglob("*.md"))}
LIST = "docs/README.md"


@cache
def tokens(path: Path) -> tuple[Token, ...]:
    return tuple(MARKDOWN.parse(path.read_text(encoding="utf-8")))


def inline(path: Path) -> Iterator[Token]:
    for token in tokens(path):
        yield from token.children or ()


def links(path: Path) -> Iterator[str]:
    """Where links, pictures and tags of HTML lead."""
    for token in (*tokens(path), *inline(path)):
        found = token.attrs.get("href") or token.attrs.get("src")
        yield from [str(found)] if found else []
        yield from re.findall(r'(?:href|src|srcset)="([^"]+)"', token.content) if token.type.startswith("html_") else []


@cache
def anchors(path: Path) -> frozenset[str]:
    """A heading's words, with hyphens between them; the second of a name has a number behind it."""
    heads = [b for a, b in zip(tokens(path), tokens(path)[1:], strict=False) if a.type == "heading_open"]
    found: set[str] = set()
    for head in heads:
        text = "".join(t.content for t in head.children or () if t.type in ("text", "code_inline"))
        anchor = re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")
        names = (anchor, *(f"{anchor}-{n}" for n in range(1, len(heads))))
        found.add(next(name for name in names if name not in found))
    return frozenset(found)


def broken(path: Path) -> Iterator[str]:
    for link in links(path):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = unquote(link).partition("#")
        found = (path.parent / target).resolve() if target else path
        if target and not (found.is_relative_to(ROOT) and found.exists()):
            yield link
        elif anchor and (found.suffix != ".md" or anchor not in anchors(found)):
            yield f"{link}: {sorted(anchors(found)) if found.suffix == '.md' else 'no page'}"


@pytest.mark.parametrize("name", PAGES)
def test_links_resolve(name: str) -> None:
    assert list(broken(PAGES[name])) == []
    words = [t.content for t in inline(PAGES[name]) if t.type == "text"]
    assert [w for w in words if re.search(r"\]\[|\]\(", w)] == [], "a link that is none: [text][of what?]"


def test_links_of_tests_resolve() -> None:
    assert TESTS
    assert {name: found for name, path in TESTS.items() if (found := list(broken(path)))} == {}


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` [c](#a-b-c)\n\n# A b c\n\n[d](#a-b-c-1) [e](#e) ![f](f.svg) [g][h]\n\n[h]: h.md\n")
    assert [link.partition(": ")[0] for link in broken(page)] == ["#e", "f.svg", "h.md"]


def listed() -> Sequence[str]:
    """The pages of the list: what its items begin with."""
    found = re.findall(r"^- \[[^\]]+\]\(([^)#]+)\)", PAGES[LIST].read_text(encoding="utf-8"), re.MULTILINE)
    return [(ROOT / "docs" / page).resolve().relative_to(ROOT).as_posix() for page in found]


def test_every_page_is_listed_once() -> None:
    """Decisions are listed by their folder."""
    decisions = {n for n in PAGES if n.startswith("docs/decisions/0")}
    assert decisions and sorted(listed()) == sorted(PAGES.keys() - decisions - {LIST})
