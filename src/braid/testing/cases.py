"""Case files: a page of Markdown that says what goes in and what comes out, run as a test.

In: a Markdown file with fenced blocks (docs/case-pages.md). Out: a result per block, or the file with the rows that
really came (`accept`).
Rule: blocks run in their order on one driver; a file is a case, and what it does not say is not checked.

The blocks, their columns and what each checks are told in docs/case-pages.md. A block that is none of them, and is not
only to be read (`SHOWN`), is refused, as a misspelled one would check nothing.

Values stand as JSON (docs/files-and-topics.md, "Values"), and are compared as such: 1, 1.0, "1" and true all differ.
"""

from __future__ import annotations

import base64
import json
import math
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from braid.bind.dialects import DIALECTS
from braid.errors import BraidError, SqlError
from braid.expr.loading import of_text
from braid.guess import meant
from braid.testing.driver import Driver, Record
from braid.testing.sql_tests import failure, is_sql_test, sql_tests

FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[ \t]*(.*)$")
KINDS = ("sql", "input", "output", "standing", "refused", "explain", "query", "drops", "schema", "functions")
NAMED = ("output", "standing", "explain", "drops")  # those that say of what
SHOWN = ("", "bash", "console", "csv", "diff", "json", "jsonl", "markdown", "mermaid", "python", "sh", "text", "yaml")
SCHEMA = re.compile(
    r"(?P<topic>\S+) +(?P<facet>key|value) +(?P<format>\w+)(?: +id=(?P<id>\d+))?(?P<uses>(?: +uses=\S+@\S+:\d+)*)$"
)
ORDERED = "ordered"  # of a query's rows
USES = re.compile(r"uses=(\S+?)@(\S+):(\d+)")
INPUT_COLUMNS = ("topic", "timestamp", "key", "value", "partition", "headers", "window")
OUTPUT_COLUMNS = ("timestamp", "key", "value", "partition", "headers", "window")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its kind, the rest of the fence line, its text and the line number of its first line. `closed`:
    whether the page ends behind it."""

    kind: str
    argument: str
    text: str
    line: int
    closed: bool = True


@dataclass(slots=True)
class Outcome:
    """What a case gave: failures as (line, message), and for `--accept` the real text of each output block by line."""

    path: Path
    blocks: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)
    actual: dict[int, str] = field(default_factory=dict)
    seen: dict[str, list[Record]] = field(default_factory=dict)  # all records read so far, by topic


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    lines = text.splitlines()
    i = 0
    while i < len(lines):
        fence = FENCE.match(lines[i])
        if fence is None:
            i += 1
            continue
        start = i + 1
        ends = re.compile(rf"^ {{0,3}}{fence[1][0]}{{{len(fence[1])},}}\s*$")
        end = next((j for j in range(start, len(lines)) if ends.match(lines[j])), len(lines))
        text = "\n".join(lines[start:end])
        yield Block(fence[2], fence[3].strip(), text, start + 1, closed=end < len(lines))
        i = end + 1


def misfits(page: Sequence[Block]) -> Iterator[tuple[int, str]]:
    """What is wrong with the fences of a page, by line."""
    dialect: str | None = None
    for block in page:
        line, problem = block.line - 1, None
        if block.kind not in (*KINDS, *SHOWN):
            blocks = f"the blocks of a case are {', '.join(KINDS)}; text is only to be read"
            problem = BraidError(f"no block is called {block.kind}", meant(block.kind, KINDS, blocks))
        elif not block.closed:
            problem = BraidError("the fence is not closed", f"write {'`' * 3} on a line of its own")
        elif block.kind in NAMED and not block.argument:
            what = "query" if block.kind in ("explain", "drops") else "topic"
            problem = BraidError(f"{block.kind} of what?", f"write the {what}: {'`' * 3}{block.kind} name")
        elif block.kind == "sql" and block.argument:
            if dialect is not None and block.argument != dialect:
                problem = BraidError(f"the page is in {dialect}", f"write a page of its own for {block.argument}")
            elif block.argument not in DIALECTS:
                known = f"dialects are {', '.join(DIALECTS)}"
                problem = BraidError(f"unknown dialect {block.argument}", meant(block.argument, DIALECTS, known))
            dialect = dialect or block.argument
        elif block.kind == "schema" and SCHEMA.match(block.argument) is None:
            written = "schema TOPIC key|value FORMAT [id=N] [uses=NAME@SUBJECT:VERSION …]"
            problem = BraidError(f"what is the schema of? {block.argument}", f"write {'`' * 3}{written}")
        elif block.kind == "query" and block.argument not in ("", ORDERED):
            written = f"write {'`' * 3}query, or {'`' * 3}query {ORDERED}"
            problem = BraidError(f"what is query {block.argument}?", written)
        elif block.kind == "refused" and "\n----" not in block.text:
            problem = BraidError("nothing is said of the refusal", "behind the statements write ---- and a part of it")
        if problem is not None:
            yield line, str(problem)


def run_case(path: Path, runtime: str = "local", batch: int | None = None, buckets: int | None = None) -> Outcome:
    """Runs one case file, or one of tests in SQL."""
    outcome, text = Outcome(path), _read(path)
    if path.suffix == ".sql":
        tests = list(sql_tests(text))
        found = (failure(test, runtime, batch, buckets) for test in tests)
        return Outcome(path, len(tests), [f for f in found if f is not None])
    page = list(blocks(text))
    outcome.failures.extend(misfits(page))
    if outcome.failures:
        return outcome
    dialect = next((b.argument for b in page if b.kind == "sql" and b.argument), "ksqldb")
    with Driver(dialect=dialect, runtime=runtime, batch=batch, buckets=buckets) as driver:  # type: ignore[arg-type]
        for block in page:
            outcome.blocks += 1
            try:
                problem = _run_block(driver, block, outcome)
            except BraidError as e:
                problem = str(e)
            except Exception:  # a bug of ours ends this page, not the run
                problem = f"internal error\n{traceback.format_exc()}"
            if problem is not None:
                outcome.failures.append((block.line, problem))
                if block.kind in ("sql", "schema", "functions", "input") or problem.startswith("internal error"):
                    break  # nothing after it can hold
    return outcome


def _run_block(driver: Driver, block: Block, outcome: Outcome) -> str | None:
    match block.kind:
        case "sql":
            driver.execute(block.text)
            return None
        case "functions":
            driver.functions(of_text(block.text, "functions.py"))
            return None
        case "schema":
            _register(driver, block)
            return None
        case "input":
            _feed(driver, block)
            return None
        case "output":
            return _compare(_look(driver, block, outcome), block, outcome)
        case "standing":
            _look(driver, block, outcome)
            return _compare(_standing(outcome.seen[block.argument]), block, outcome, ("key", "value"))
        case "refused":
            return _refused(driver, block)
        case "explain":
            want, got = _json(block.text, block.line), driver.explain(block.argument)
            return None if _part(want, got) else f"the plan has no such part; it is {json.dumps(got, default=str)}"
        case "drops":
            return _drops(driver.drops(block.argument), block)
        case "query":
            return _query(driver, block, outcome)
        case _:
            outcome.blocks -= 1
            return None


def _register(driver: Driver, block: Block) -> None:
    found = SCHEMA.match(block.argument)
    assert found is not None
    uses = [(name, subject, int(version)) for name, subject, version in USES.findall(found["uses"])]
    facet: Any = found["facet"]
    id = None if found["id"] is None else int(found["id"])
    driver.schema(found["topic"], facet, found["format"], block.text, id, uses)


def _feed(driver: Driver, block: Block) -> None:
    head: Sequence[str] = INPUT_COLUMNS[:4]
    for number, line in enumerate(block.text.splitlines()):
        words = line.split()
        if not words or line.lstrip().startswith("--"):
            continue
        if words[0] == "topic":
            head = _head(words, INPUT_COLUMNS, block.line + number)
        elif words[0] == "clock" and len(words) == 3:
            driver.clock(words[1], int(words[2]))
        elif words == ["restart"]:
            driver.restart()
        elif words == ["finish"]:
            driver.finish()
        else:
            fields = _fields(line, head, block.line + number)
            driver.write(
                fields["topic"],
                key=fields.get("key"),
                value=fields.get("value"),
                timestamp=fields.get("timestamp", 0),
                partition=fields.get("partition", 0),
                headers=[(h[0], h[1]) for h in fields.get("headers", [])],
                window=None if fields.get("window") is None else (fields["window"][0], fields["window"][1]),
            )


def _head(words: list[str], known: Sequence[str], line: int) -> list[str]:
    """The columns that a head line names."""
    for word in words:
        if word not in known:
            listed = f"columns are {', '.join(known)}"
            raise BraidError(f"line {line}: no column {word}", meant(word, known, listed))
    return words


def _json(text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except ValueError as e:
        raise BraidError(f"line {line}: not JSON: {e}", 'write texts as "text"') from None


def _fields(line: str, head: Sequence[str], number: int) -> dict[str, Any]:
    """One line by its head: words for `topic`, JSON for the rest."""
    made: dict[str, Any] = {}
    rest = line.strip()
    for name in head:
        try:
            if name == "topic":
                made[name], _, rest = rest.partition(" ")
            else:
                made[name], end = json.JSONDecoder().raw_decode(rest)
                rest = rest[end:]
        except ValueError:
            raise BraidError(f"line {number}: {name} is not JSON: {rest[:40]}", 'write strings as "text"') from None
        rest = rest.lstrip()
    if rest:
        raise BraidError(f"line {number}: more fields than the head names: {rest[:40]}")
    return made


def _look(driver: Driver, block: Block, outcome: Outcome) -> list[Record]:
    """What came since the last look."""
    new = driver.read(block.argument)
    outcome.seen.setdefault(block.argument, []).extend(new)
    return new


def _standing(records: Sequence[Record]) -> list[Record]:
    """The last record of each key, if it is no tombstone."""
    last = {_canonical(_plain(r.key)): r for r in records}
    return [r for _, r in sorted(last.items()) if r.value is not None]


def _compare(
    records: Sequence[Record], block: Block, outcome: Outcome, columns: Sequence[str] = OUTPUT_COLUMNS[:3]
) -> str | None:
    lines = [line for line in block.text.splitlines() if line.strip()]
    head = _head(lines[0].split(), OUTPUT_COLUMNS, block.line) if lines else list(columns)
    want = [_fields(line, head, block.line + i + 1) for i, line in enumerate(lines[1:])]
    got = [{name: _plain(getattr(r, name)) for name in head} for r in records]
    outcome.actual[block.line] = "\n".join(_table(head, got))
    if _canonical(want) == _canonical(got):
        return None
    shown = "\n".join(f"    {line}" for line in _table(head, got))
    return f"output {block.argument} differs; it is\n{shown}"


def _table(head: Sequence[str], rows: Sequence[dict[str, Any]]) -> list[str]:
    cells = [list(head), *([json.dumps(r[n], ensure_ascii=False) for n in head] for r in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]


def _plain(value: Any) -> Any:
    """A value as JSON has it: DECIMAL as text, BYTES as base64, a DOUBLE that is no number by its name."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return f"{value:f}"
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(k): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case _:
            return str(value)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _refused(driver: Driver, block: Block) -> str | None:
    sql, _, expected = block.text.partition("\n----")
    place = re.search(r"^at (\d+):(\d+)$", expected, re.MULTILINE)
    parts = re.sub(r"^at \d+:\d+$", "", expected, flags=re.MULTILINE).splitlines()
    try:
        driver.execute(sql)
    except SqlError as e:
        text = " ".join(str(e).split()).lower()
        if not all(" ".join(part.split()).lower() in text for part in parts):
            return f"refused, but with: {e}"
        if place is not None and (e.line, e.column) != (int(place[1]), int(place[2])):
            return f"refused, but at {e.line}:{e.column}: {e}"
        return None
    return "was not refused"


def _query(driver: Driver, block: Block, outcome: Outcome) -> str | None:
    """The rows of a query over tables."""
    sql, _, expected = block.text.partition("\n----")
    want = [_row(line, block.line) for line in expected.splitlines() if line.strip()]
    got = [[_plain(v) for v in row] for row in driver.query(sql)]
    if block.argument != ORDERED and not re.search(r"\border\s+by\b", sql, re.IGNORECASE):
        want, got = sorted(want, key=_canonical), sorted(got, key=_canonical)
    shown = ["  ".join(json.dumps(v, ensure_ascii=False) for v in row) for row in got]
    outcome.actual[block.line] = "\n".join([sql, "----", *shown])
    if _canonical(want) == _canonical(got):
        return None
    return "the rows differ; they are\n" + "\n".join(f"    {line}" for line in shown)


def _row(line: str, number: int) -> list[Any]:
    """The JSON values of a line."""
    values: list[Any] = []
    rest = line.strip()
    while rest:
        try:
            value, end = json.JSONDecoder().raw_decode(rest)
        except ValueError:
            raise BraidError(f"line {number}: not JSON: {rest[:40]}", 'write texts and times as "text"') from None
        values.append(value)
        rest = rest[end:].lstrip()
    return values


def _drops(rows: Sequence[dict[str, Any]], block: Block) -> str | None:
    want = [_json(line, block.line + n) for n, line in enumerate(block.text.splitlines()) if line.strip()]
    got = [_plain(r) for r in rows]
    if len(want) == len(got) and all(_part(w, g) for w, g in zip(want, got, strict=True)):
        return None
    return "drops differ; they are\n" + "\n".join(f"    {json.dumps(g)}" for g in got)


def _part(want: Any, got: Any) -> bool:
    """Whether `want` is part of `got`: a dict's entries, a list's elements in any order, equal scalars, "~text"."""
    if isinstance(want, dict):
        return isinstance(got, dict) and all(k in got and _part(v, got[k]) for k, v in want.items())
    if isinstance(want, list):
        return isinstance(got, list) and all(any(_part(w, g) for g in got) for w in want)
    if isinstance(want, str) and want.startswith("~"):
        return isinstance(got, str) and want[1:] in got
    return _canonical(want) == _canonical(_plain(got))


def accepted(text: str, outcome: Outcome) -> str:
    """The page with the rows that really came in its output blocks."""
    lines = text.splitlines()
    for line in sorted(outcome.actual, reverse=True):
        end = next((j for j in range(line - 1, len(lines)) if lines[j].lstrip().startswith(("```", "~~~"))), len(lines))
        lines[line - 1 : end] = outcome.actual[line].splitlines()
    return "\n".join(lines) + "\n"


def _is_case(path: Path) -> bool:
    return any(b.kind not in SHOWN for b in blocks(_read(path)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        why = getattr(e, "strerror", None) or "it is not UTF-8 text"
        raise BraidError(f"cannot read {path}: {why}") from None


def case_files(paths: Sequence[str]) -> list[Path]:
    """The case pages under paths: files as named, in folders all `.md` files with blocks that are more than shown, and
    tests in SQL."""
    found: list[Path] = []
    for p in map(Path, paths):
        if p.is_dir():
            found += [page for page in sorted(p.rglob("*.md")) if _is_case(page)]
            found += [file for file in sorted(p.rglob("*.sql")) if is_sql_test(_read(file))]
        elif p.is_file() and p.suffix == ".sql" and is_sql_test(_read(p)):
            found.append(p)
        elif p.is_file() and p.suffix == ".md":
            if not _is_case(p):
                raise BraidError(f"{p} has no block of a case", "see docs/case-pages.md")
            found.append(p)
        elif p.is_file():
            hint = "a case is a Markdown file, see docs/case-pages.md"
            hint = f"{hint}; to check SQL: braid check {p}" if p.suffix == ".sql" else hint
            raise BraidError(f"{p} is no case page", hint)
        else:
            raise BraidError(f"no file or folder {p}")
    return found
