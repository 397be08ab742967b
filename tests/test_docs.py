"""The documentation is run: statements are bound, commands are carried out, plans are made again, links resolve.

In: README, CHANGELOG, docs/ and the examples.
Rule: a fenced block is of a kind that is known here, so that none escapes.

Blocks
  sql ksqldb [FILE]   statements; all of a page are bound, in their order. FILE: also written to the page's folder
  csv FILE            a file of the page's folder
  console             `$ braid …` and what it prints; a line `…` stands for any lines, `…` in a line for any text
  console spark       the same, started only by tests with a JVM, as is whatever follows on the page
  console s3          the same, where there is an S3 server (tests/objects/test_pages.py)
  python              a program that must end well; `python spark`: in its place among the commands, with a JVM;
                      `python FILE`: a file of functions, which the page's statements may call
  sh, text, mermaid   for people
and those of case files, on the pages of docs/semantics (`braid test docs/semantics`) and docs/choose-your-dialect.md.

With BRAID_ACCEPT=1 the output of `console` blocks without `…` is written into the page.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import ksqldb_reference
from braid.bind.catalog import Catalog
from braid.bind.program import Program
from braid.bind.risingwave.batch_aggregates import AGGREGATES as BATCH_AGGREGATES
from braid.bind.risingwave.batch_aggregates import EXTREMES, WINDOWS
from braid.bind.risingwave.batch_values import PRESENT
from braid.bind.settings import SETTINGS
from braid.errors import BraidError
from braid.expr.aggregates import AGGREGATES
from braid.expr.functions import by_name
from braid.expr.loading import of_text
from braid.expr.user import NONE, Functions
from braid.face.scripts import scripts_in
from braid.sql.dialects.ksqldb import KSQLDB
from braid.sql.dialects.risingwave_calls import LEVELS
from braid.sql.parser import dialect_of
from braid.testing.cases import DIALECTS, INPUT_COLUMNS, SHOWN, blocks, run_case
from braid.testing.cases import KINDS as case_kinds
from braid.topics.registries import StoreRegistry
from cli_help import shown
from pages import PAGES, ROOT, Said, commands, has, matches, page_blocks

DIALECT = ROOT / "docs" / "dialects" / "ksqldb.md"
CASES = {"sql", "input", "output", "standing", "query", "refused", "drops", "explain"}
KINDS = {"sql", "csv", "console", "python", "sh", "text", "mermaid", "markdown"}

BATCH = "docs/semantics/batch.md"  # a list of what tests/test_law_batch.py runs: no case page
SEMANTICS = [name for name in PAGES if name.startswith("docs/semantics/") and name != BATCH]
CHOICE = "docs/choose-your-dialect.md"  # one question, a case for each dialect
OTHERS = [name for name in PAGES if name not in (*SEMANTICS, CHOICE)]


def program_of(dialect: str, functions: Functions = NONE) -> Program:
    """A program with a registry of its own, as each store has one."""
    return Program(dialect, Catalog(registry=StoreRegistry(), functions=functions))


# ---------------------------------------------------------------------- pages


@pytest.mark.parametrize("name", PAGES)
def test_every_block_is_of_a_known_kind(name: str) -> None:
    known = CASES if name in (*SEMANTICS, CHOICE) else KINDS
    assert {b.kind for b in page_blocks(name)} <= known
    fences = [line for line in PAGES[name].read_text(encoding="utf-8").splitlines() if line.lstrip().startswith("```")]
    inside = [x for b in page_blocks(name) for x in b.text.splitlines() if x.lstrip().startswith("```")]
    assert len(fences) - len(inside) == 2 * len(page_blocks(name)), "a fence without a kind, or indented, or not closed"


@pytest.mark.parametrize("name", PAGES)
def test_paths_that_are_named_exist(name: str) -> None:
    """`src/braid/…`, `tests/…`, `docs/…` and `examples/…` in back-ticks."""
    text = PAGES[name].read_text(encoding="utf-8")
    for path in re.findall(r"`((?:src|tests|docs|examples)/[A-Za-z0-9_./-]+)`", text):
        assert (ROOT / path).exists(), f"{name}: {path}"


@pytest.mark.parametrize("name", PAGES)
def test_make_targets_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = PAGES[name].read_text(encoding="utf-8")
    named = re.findall(r"`make ([a-z-]+)`", text)
    named += [
        m for b in page_blocks(name) if b.kind == "sh" for m in re.findall(r"^make ([a-z-]+)", b.text, re.MULTILINE)
    ]
    assert set(named) <= targets


# ------------------------------------------------------------------- semantics


@pytest.mark.parametrize(("batch", "buckets"), [(None, 1), (1, 4)])
@pytest.mark.parametrize("name", SEMANTICS)
def test_semantics(name: str, batch: int | None, buckets: int) -> None:
    outcome = run_case(PAGES[name], "local", batch, buckets)
    assert not outcome.failures, "\n" + "\n".join(f"{name}:{line}: {text}" for line, text in outcome.failures)
    assert outcome.blocks


@pytest.mark.parametrize(("batch", "runtime"), [(None, "local"), (1, "local"), (None, "reference")])
def test_the_page_of_case_pages(batch: int | None, runtime: str, tmp_path: Path) -> None:
    (shown,) = [b for b in page_blocks("docs/case-pages.md") if b.kind == "markdown"]
    page = tmp_path / "page.md"
    page.write_text(shown.text, encoding="utf-8")
    outcome = run_case(page, runtime, batch)
    assert not outcome.failures and outcome.blocks == 7
    told = PAGES["docs/case-pages.md"].read_text(encoding="utf-8")
    for word in (*case_kinds, *INPUT_COLUMNS, *filter(None, SHOWN)):
        assert re.search(rf"`{word}\b", told), word


# Behind a case of docs/choose-your-dialect.md: the end of the input, and what went out of it.
END = """
```input
clock orders 99999
clock payments 99999
```
```output {name}
```
"""


def question(dialect: str) -> str:
    (part,) = re.findall(
        rf"^### {dialect}\n.*?(?=^##)", PAGES[CHOICE].read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return str(part)


@pytest.mark.parametrize(("batch", "runtime"), [(None, "local"), (1, "local"), (None, "reference")])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_question_in_each_dialect(dialect: str, batch: int | None, runtime: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(question(dialect), encoding="utf-8")
    outcome = run_case(page, runtime, batch)
    assert not outcome.failures, "\n".join(text for _, text in outcome.failures)
    assert outcome.blocks > 4


@pytest.mark.parametrize(("dialect", "name"), [("ksqldb", "paid"), ("sqlstream", "in_the_end"), ("lenses", "paid")])
def test_the_dialects_agree_in_the_end(dialect: str, name: str, tmp_path: Path) -> None:
    """On what stands in risingwave."""
    page = tmp_path / "page.md"
    page.write_text(question(dialect) + END.format(name=name), encoding="utf-8")
    seen = run_case(page).seen
    rows = sorted(
        tuple({k.lower(): v for k, v in r.value.items() if k.lower() != "id"}.values())
        for x in seen
        for r in seen[x]
        if x.lower() == name
    )
    (query,) = [b for b in blocks(question("risingwave")) if b.kind == "query"]
    stand = [line.split("  ") for line in query.text.split("----\n")[1].splitlines()]
    assert rows == sorted((json.loads(item), json.loads(method)) for _, item, method in stand)


# ------------------------------------------------------------------ statements


@pytest.mark.parametrize("name", [n for n in OTHERS if has(n, "sql")])
def test_statements_bind(name: str) -> None:
    programs: dict[str, Program] = {}
    functions = NONE
    for block in page_blocks(name):
        if block.kind == "python" and block.argument.endswith(".py"):
            functions |= of_text(block.text, block.argument)
    for block in page_blocks(name):
        if block.kind == "sql":
            dialect = block.argument.split()[0] if block.argument else ""
            assert dialect in DIALECTS, f"{name}:{block.line}: which dialect?"
            list(programs.setdefault(dialect, program_of(dialect, functions)).statements(block.text))


@pytest.mark.parametrize("name", [n for n in OTHERS if has(n, "python")])
def test_python(name: str) -> None:
    for block in page_blocks(name):
        if block.kind == "python" and block.argument != "spark":
            exec(compile(block.text, name, "exec"), {})


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.sql")), ids=lambda p: p.name)
def test_example_binds(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    list(program_of(dialect_of(text) or "ksqldb").statements(text))


# -------------------------------------------------------------------- commands


@pytest.mark.parametrize("name", [n for n in OTHERS if has(n, "console")])
def test_console(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs no Spark: everything up to the first block that does."""
    monkeypatch.chdir(tmp_path)
    run_console(name, tmp_path, spark=False)


@pytest.mark.spark
@pytest.mark.parametrize("name", [n for n in OTHERS if has(n, "console", "spark") or has(n, "python", "spark")])
def test_console_spark(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from braid.testing.on_spark import shared_session

    shared_session()
    monkeypatch.chdir(tmp_path)
    run_console(name, tmp_path, spark=True)


def run_console(name: str, folder: Path, spark: bool, s3: bool = False) -> None:
    """The page's commands in a folder of their own, in which the repository's folders can be read. `s3`: only those
    that need a server."""
    for shared in ("examples", "docs", "tests"):
        (folder / shared).symlink_to(ROOT / shared)
    for block in page_blocks(name):
        words = block.argument.split()
        if block.kind == "csv" or (block.kind == "sql" and len(words) == 2) or block.argument.endswith(".py"):
            (folder / words[-1]).write_text(block.text + "\n", encoding="utf-8")
    problems, names = [], {"__name__": "__main__"}
    for block in page_blocks(name):
        if block.argument == "spark" and not spark:
            break
        if block.kind == "python" and block.argument == "spark":
            problems += [f"{name}:{block.line}: {line}" for line in failed(block.text, names)]
        if block.kind != "console" or (block.argument == "s3") != s3:
            continue
        for said in commands(block):
            got = carried_out(said.command)
            if not matches(said.output, got):
                accept(PAGES[name], said, got)
                problems.append(f"{name}:{said.line}: $ {said.command}\n" + "\n".join(f"    {x}" for x in got))
    assert not problems, "\n" + "\n".join(problems)


def carried_out(command: str) -> list[str]:
    """What the command prints, errors included, line by line. Spark, where it needs it, is that of all tests."""
    program, *arguments = shlex.split(command)
    assert program == "braid", f"only braid is run, not {program}"
    return shown(*arguments)


def failed(program: str, names: dict[str, str]) -> list[str]:
    """Why a program did not end well. `names`: what those before it on the page have made."""
    try:
        exec(compile(program, "page", "exec"), names)
    except BaseException:
        return traceback.format_exc().splitlines()[-20:]
    return []


def accept(page: Path, said: Said, got: list[str]) -> None:
    """Writes what really came into the page. (Line numbers hold for one command a run; run it again for the next.)"""
    if os.environ.get("BRAID_ACCEPT") and not any("…" in line for line in said.output):
        lines = page.read_text(encoding="utf-8").splitlines()
        if lines[said.line - 1] == f"$ {said.command}":
            lines[said.line : said.line + len(said.output)] = got
            page.write_text("\n".join(lines) + "\n", encoding="utf-8")


# ---------------------------------------------------------------- dialect table


@dataclass(frozen=True)
class Row:
    """A row of a table of docs/dialects/<dialect>.md: what, how it stands, statements and links."""

    dialect: str
    what: str
    now: str
    statements: list[str]
    links: list[str]


def table_rows(dialect: str) -> list[Row]:
    found = []
    for line in (DIALECT.parent / f"{dialect}.md").read_text(encoding="utf-8").splitlines():
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and cells[1] != "now" and not set(cells[1]) <= {"-"}:
            shown = cells[2].replace("\\|", "|")
            statements, links = re.findall(r"`([^`]+)`", shown), re.findall(r"\]\(([^)]+)\)", shown)
            found.append(Row(dialect, cells[0], cells[1], statements, links))
    return found


ROWS = [row for dialect in DIALECTS for row in table_rows(dialect)]


def row_id(row: Row) -> str:
    return f"{row.dialect}-" + re.sub(r"[^A-Za-z0-9]+", "-", row.what)[:40].strip("-")


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_dialect_row(row: Row) -> None:
    status = re.split(r"[:;]", row.now)[0]
    assert status in ("does", "differs", "not yet", "never"), row.now
    assert row.statements or row.links, "no proof"
    assert row.links or status != "differs" or ":" in row.now, "which difference?"
    for link in row.links:
        path = (DIALECT.parent / link).resolve()
        assert path.is_file()
        assert path.is_relative_to(ROOT / "tests" / "cases" / row.dialect), "test_cases.py runs those only"
    for sql in row.statements:
        program = program_of(row.dialect)
        program.scripts = scripts_in(str(ROOT / "examples"))
        list(program.statements(page_blocks(f"docs/dialects/{row.dialect}.md")[0].text))
        if status in ("does", "differs"):
            list(program.statements(sql))
            continue
        with pytest.raises(BraidError) as refused:
            list(program.statements(sql))
        if status == "not yet":
            assert re.search(r"not supported yet|windowed sources", str(refused.value)), f"{sql}: {refused.value}"


def test_dialect_page_names_everything() -> None:
    text = DIALECT.read_text(encoding="utf-8")
    words = set(re.findall(r"[A-Z_][A-Z_0-9]+", text))
    functions = by_name("ksqldb")
    shows = {word for s in (*KSQLDB.shows, "CONNECTORS", "TYPES", "VARIABLES") for word in s.split()}
    for name in (*functions, *AGGREGATES, *KSQLDB.statements, *shows):
        assert name in words, f"docs/dialects/ksqldb.md does not name {name}"
    for setting, row in SETTINGS["ksqldb"].items():
        assert f"'{setting}'" in text
        assert all(value in text for value in row.takes), setting


def has_row(word: str, cells: list[str]) -> bool:
    """Whether some row has the words, in their order, whatever stands between them: `CREATE [OR REPLACE] TYPE`."""
    parts = [rf"(?<![A-Za-z_.]){re.escape(w)}(?![A-Za-z_])" for w in word.split()]
    return any(re.search(r"[^|]*?".join(parts), cell, re.IGNORECASE) for cell in cells)


@pytest.mark.parametrize("word", ksqldb_reference.words())
def test_every_word_of_the_reference_has_a_row(word: str) -> None:
    cells = [f"{row.what} | {' '.join(row.statements)}" for row in ROWS if row.dialect == "ksqldb"]
    assert has_row(word, cells), f"docs/dialects/ksqldb.md has no row for {word}"


@pytest.mark.parametrize("operator", ksqldb_reference.OPERATORS.split())
def test_every_operator_of_the_reference_has_a_row(operator: str) -> None:
    assert any(operator in row.what.replace("\\|", "|") for row in ROWS if row.dialect == "ksqldb")


def test_every_function_has_a_row() -> None:
    cells = [row.what for row in ROWS if row.dialect == "ksqldb"]
    for name in (*by_name("ksqldb"), *AGGREGATES):
        assert has_row(name, cells), name


@pytest.mark.parametrize("dialect", ["lenses", "sqlstream"])
def test_the_page_of_a_dialect_names_its_functions(dialect: str) -> None:
    cells = [row.what for row in ROWS if row.dialect == dialect]
    for name in by_name(dialect):
        assert has_row(name, cells), name


def _names_behind(begin: str) -> set[str]:
    """The names of a paragraph of docs/dialects/risingwave.md."""
    text = (DIALECT.parent / "risingwave.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^{re.escape(begin)}:(.*?)\n$", text, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([^`]+)`", found))


def test_the_page_of_risingwave_names_what_is_accepted() -> None:
    """All of it, and nothing else."""
    present = {*map(str.upper, PRESENT), "RANDOM", "GENERATE_SERIES", "RANGE", "UNNEST"}
    for begin, names in (
        ("Functions", by_name("risingwave")),
        ("Aggregates", (*BATCH_AGGREGATES, *EXTREMES)),
        ("Over windows besides", WINDOWS.keys() - BATCH_AGGREGATES.keys()),
        ("Besides [the functions of all expressions](#expressions)", present),
    ):
        assert _names_behind(begin) == {n.lower() for n in names}, begin
    signs = {*LEVELS, "+", "-", "*", "/", "%", "||", "=", "<>", "!=", "<", "<=", ">", ">=", "@"}
    assert {s for s in _names_behind("Operators") if not re.search("[A-Z:a]", s)} == signs


def test_changelog_counts() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert (
        f"{sum(f.kind == 'scalar' for f in by_name('ksqldb').values())} scalar functions, {len(AGGREGATES)} aggregates"
        in text
    )


# ---------------------------------------------------------------- architecture


def test_architecture_names_the_import_contracts() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in project["tool"]["importlinter"]["contracts"]:
        assert f"- {contract['name']}\n" in text, contract["name"]


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("adding-*.md")), ids=lambda p: p.stem)
def test_names_in_the_pages_that_say_how_to_add_something(page: Path) -> None:
    """Each file is there, and each `name` is in one of those that its page, of joins its section, names."""
    text = page.read_text(encoding="utf-8")
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:] if page.stem == "adding-a-join" else [text]
    for part in (p for p in parts if not p.startswith("Tests")):
        named = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", part)
        files = {name: sources_named(name) for name in named}
        assert all(files.values()), [name for name, found in files.items() if not found]
        sources = "\n".join(p.read_text(encoding="utf-8") for found in files.values() for p in found)
        names = re.findall(r"`(_?[a-z][a-z_]+|_?[A-Z][A-Za-z]+|_?[A-Z_]{4,})`", part) if sources else []
        assert [name for name in names if not re.search(rf"\b{name}\b", sources)] == []


@functools.cache
def _sources() -> list[Path]:
    return [p for room in ("src", "tests") for p in sorted((ROOT / room).rglob("*.py"))]


def sources_named(name: str) -> list[Path]:
    return [p for p in _sources() if p.as_posix().endswith(f"/{name}")]


# -------------------------------------------------------------------- pointers

RULE_PAGES = [name for name in PAGES if name.startswith("docs/rules/")]
FAMILIES = ["K", "KR", "KE", "RW", "RF", "RE", "S", "SF", "SE", "L", "LE", "P", "PE"]  # of rules, fixtures and errata
RULE = rf"\b({'|'.join(FAMILIES)})-(\d+)\b"
RANGE = rf"{RULE}(?: to | \.\. |-|–){RULE}"
POINTER = r'\b((?:docs/[\w./-]+|README|CHANGELOG)\.md)\b((?:`?,?(?: and| or)? "[^"]+")*)'
CODE = sorted(p for part in ("src", "tests", "benchmarks") for p in (ROOT / part).rglob("*.py"))
CASE_PAGES = sorted((ROOT / "tests").rglob("*.md"))
TEXTS = {p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8") for p in [*CODE, *CASE_PAGES, *PAGES.values()]}


def rules_of(name: str) -> list[str]:
    """What a page of rules defines: list items that begin with a number in bold."""
    return re.findall(r"^- \*\*([A-Z]+-?\d+)\*\*", TEXTS[name], re.MULTILINE)


def rules_in(text: str) -> Iterator[str]:
    """The rules that a text names, those within a range too."""
    for family, number in re.findall(RULE, text):
        yield f"{family}-{number}"
    for family, first, other, last in re.findall(RANGE, text):
        assert family == other and int(first) < int(last), f"{family}-{first} to {other}-{last}"
        yield from (f"{family}-{n}" for n in range(int(first), int(last)))


def test_a_rule_is_defined_once() -> None:
    found = Counter(rule for name in RULE_PAGES for rule in rules_of(name))
    assert [rule for rule, n in found.items() if n > 1] == []
    assert {re.split(r"-?\d", rule)[0] for rule in found} >= set(FAMILIES)


def test_rules_that_are_named_are_defined() -> None:
    known = {rule for name in RULE_PAGES for rule in rules_of(name)}
    unknown = {f"{name}: {rule}" for name, text in TEXTS.items() for rule in rules_in(text) if rule not in known}
    assert sorted(unknown) == []


def test_fixtures_of_lenses_are_defined() -> None:
    known = set(rules_of("docs/rules/lenses.md"))
    of_lenses = [n for n in TEXTS if n.startswith("tests/cases/lenses/") or n.endswith("/lenses.md")]
    named = {f"{n}: {rule}" for n in of_lenses for rule in re.findall(r"\bF\d+\b", TEXTS[n]) if rule not in known}
    assert sorted(named) == []


def test_pages_and_sections_that_are_named_exist() -> None:
    """A page below docs/, and behind it the sections in quotes, in comments and docstrings of one line or several."""
    missing = []
    for name, text in TEXTS.items():
        for page, quoted in re.findall(POINTER, re.sub(r"\s*\n\s*(?:#\s?)?", " ", text)):
            told = (ROOT / page).read_text(encoding="utf-8") if (ROOT / page).is_file() else None
            heads = re.findall(r"^#+ (.+)$", told or "", re.MULTILINE)
            lacks = [s for s in re.findall(r'"([^"]+)"', quoted) if s not in heads]
            missing += [f"{name}: {page} {lacks}"] if told is None or lacks else []
    assert missing == []


def test_code_names_pages_of_the_repository_only() -> None:
    of_code = {n: text for n, text in TEXTS.items() if n.startswith(("src/", "benchmarks/"))}
    named = {
        (name, page) for name, text in of_code.items() for page in re.findall(r'(?<!["\w/.-])[\w/.-]+\.md\b', text)
    }
    assert [x for x in sorted(named) if not x[1].startswith(("docs/", "README.md", "CHANGELOG.md"))] == []
