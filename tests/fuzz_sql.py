"""SQL to fuzz with: the statements of all case pages, and ways to spoil them.

In: the pages of `tests/cases`, a random generator. Out: a page's statements (what they need stands before them), and
mutated texts.
Rule: the same seed gives the same texts, whatever Python's hash seed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from braid.bind.dialects import dialect_named
from braid.errors import SqlError
from braid.sql.parser import parse
from braid.testing.cases import blocks

CASES = Path(__file__).parent / "cases"
TOKEN = re.compile(
    r"\s+|--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|[\w.]+|->|=>|:=|<=|>=|<>|!=|::|\|\||.", re.S
)


@dataclass(frozen=True)
class Page:
    """The statements of a case page, in their order; some of them are refused."""

    name: str
    dialect: str
    statements: tuple[str, ...]


@cache
def pages() -> tuple[Page, ...]:
    """All case pages with SQL, in the order of their names. A section of a page in `bind/` is a page."""
    found: list[Page] = []
    for path in sorted(CASES.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        sections = text.split("\n# ") if path.parent.name == "bind" else [text]
        found += [_page(f"{path.relative_to(CASES)} {n}", section) for n, section in enumerate(sections)]
    return tuple(p for p in found if p.statements)


def _page(name: str, text: str) -> Page:
    found = [b for b in blocks(text) if b.kind in ("setup", "sql", "refused", "query")]
    dialect = next((b.argument for b in found if b.kind == "sql" and b.argument), "ksqldb")
    texts = [b.text.partition("\n----")[0] for b in found]
    return Page(name, dialect, tuple(s for t in texts for s in _split(t, dialect)))


def _split(text: str, dialect: str) -> list[str]:
    """The statements of a text, each with its `;`; a text that cannot be read is one."""
    try:
        ends = [s.span.end for s in parse(text, dialect_named(dialect).words).statements]
    except SqlError:
        return [text]
    return [text[a:b].lstrip("; \n") + ";" for a, b in zip([0, *ends], ends, strict=False)]


@cache
def words() -> tuple[str, ...]:
    """Every token of every page once, sorted."""
    texts = [s for p in pages() for s in p.statements]
    return tuple(sorted({t for s in texts for t in TOKEN.findall(s) if t.strip()}))


ODD = (
    *("\0", "\x1b", "\u2028", "\u00a0", "\ufeff", "é", "名前", "\U0001f600", "e\u0301", "\ud800", "ﬀ", "İ", "²", "١٢"),
    *(
        "'",
        '"',
        "`",
        "/*",
        "--",
        "${",
        "${x}",
        "''",
        '""',
        "$$",
        "\\",
        ";",
        ";;",
        "(",
        ")",
        ",",
        ".",
        "*",
        "@",
        "#",
        "?",
    ),
    *("9" * 400, "1e400", "1e-400", "-0.0", "0x1F", "1.2.3", "1e", ".5", "5.", "9223372036854775808", "0" * 300 + "1"),
    *("170141183460469231731687303715884105728", "99999999999 DAYS", "INTERVAL '9' * 9 YEAR", "DATE '9999-99-99'"),
    *(
        "a" * 10_000,
        '"' + "b" * 10_000 + '"',
        "'" + "c" * 100_000 + "'",
        "NULL",
        "NOT",
        "CASE",
        "END",
        "SELECT",
        "FROM",
    ),
    *("TIMESTAMP '0000-00-00 00:00:00'", "INTERVAL '-1' DAY", "INTERVAL '1e9' HOUR", "CAST(NULL AS DECIMAL(99,1))"),
)

# What is repeated thousands of times: (before, once more before, middle, once more behind, behind).
DEEP = (
    ("(", "1", ")"), ("NOT ", "TRUE", ""), ("- ", "1", ""), ("", "1", " + 1"), ("", "x", " OR x"), ("", "1", " = 1"),
    ("CASE WHEN ", "TRUE", " THEN 1 END"), ("UCASE(", "'a'", ")"), ("CAST(", "1", " AS INT)"), ("[", "1", "]"),
    ("", "a", ".a"), ("", "a", "->a"), ("", "a", "[1]"), ("", "1", "::INT"), ("(SELECT ", "1", ")"),
    ("", "x", " AND x BETWEEN 1 AND 2"), ("", "x", " IS NULL"), ("", "1", ", 1"), ("x IN (", "1", ")"),
    ("ARRAY<", "INT", ">"), ("STRUCT<a ", "INT", ">"), ("SELECT * FROM (", "a", ")"), ("", "a", " JOIN a ON a.b = a.b"),
    ("", "'a'", " || 'a'"), ("/*", "", "*/"), ("", ";", ";"), ("WITH a AS (", "SELECT 1", ") SELECT 1"),
    ("EXPLAIN ", "SELECT 1", ""), ("", "SELECT 1", " UNION SELECT 1"), ("(", "", ""), ("", "", ")"), ("'", "", ""),
    ("${", "", "}"), ("\n", "x", "\n"), ("-", "", ""), ("", "1", "e"), ("a.", "*", ""),
)  # fmt: skip


def mutated(r: random.Random, statement: str) -> str:
    """The statement, spoilt in one to four ways."""
    text = statement
    for _ in range(r.choice((1, 1, 1, 2, 3, 4))):
        text = r.choice(_WAYS)(r, text)
    return text


def _tokens(text: str) -> list[str]:
    return TOKEN.findall(text)


def _place(r: random.Random, tokens: list[str]) -> int:
    """The number of a token that is no blank."""
    there = [i for i, t in enumerate(tokens) if t.strip()]
    return r.choice(there) if there else 0


def _on_tokens(change: Callable[[random.Random, list[str], int], None]) -> Callable[[random.Random, str], str]:
    def way(r: random.Random, text: str) -> str:
        tokens = _tokens(text)
        if tokens:
            change(r, tokens, _place(r, tokens))
        return "".join(tokens)

    return way


def _dropped(r: random.Random, tokens: list[str], at: int) -> None:
    del tokens[at]


def _doubled(r: random.Random, tokens: list[str], at: int) -> None:
    tokens.insert(at, tokens[at] + " ")


def _swapped(r: random.Random, tokens: list[str], at: int) -> None:
    other = _place(r, tokens)
    tokens[at], tokens[other] = tokens[other], tokens[at]


def _replaced(r: random.Random, tokens: list[str], at: int) -> None:
    tokens[at] = r.choice(words())


def _inserted(r: random.Random, tokens: list[str], at: int) -> None:
    tokens.insert(at, r.choice(words()) + " ")


def _odd(r: random.Random, tokens: list[str], at: int) -> None:
    if r.random() < 0.5:
        tokens[at] = r.choice(ODD)
    else:
        tokens.insert(at, r.choice(ODD))


def _like(r: random.Random, tokens: list[str], at: int) -> None:
    """Another token of the same statement in its place."""
    tokens[at] = tokens[_place(r, tokens)]


def _spliced(r: random.Random, tokens: list[str], at: int) -> None:
    """A piece of another statement, of any dialect."""
    page = r.choice(pages())
    other = _tokens(r.choice(page.statements))
    start = r.randrange(len(other))
    tokens[at : at + r.randrange(4)] = [" ", *other[start : start + r.randrange(1, 12)], " "]


def _deep(r: random.Random, tokens: list[str], at: int) -> None:
    before, middle, behind = r.choice(DEEP)
    n = r.choice((10, 150, 250, 3000))
    tokens[at] = before * n + middle + behind * n


def _cut(r: random.Random, text: str) -> str:
    return text[: r.randrange(len(text) + 1)]


def _cut_front(r: random.Random, text: str) -> str:
    return text[r.randrange(len(text) + 1) :]


def _character(r: random.Random, text: str) -> str:
    at = r.randrange(len(text) + 1)
    return text[:at] + r.choice((chr(r.randrange(128)), chr(r.randrange(0x3000)), "")) + text[at + r.randrange(2) :]


_WAYS: tuple[Callable[[random.Random, str], str], ...] = (
    *(_on_tokens(w) for w in (_dropped, _doubled, _swapped, _replaced, _replaced, _inserted, _odd, _like, _like)),
    *(_on_tokens(w) for w in (_spliced, _deep)),
    *(_cut, _cut_front, _character),
)  # fmt: skip
