"""Tables of figures, on the terminal and as pages in `docs/`.

In: tables and goals of benchmarks. Out: text; the same as documents for JSON, to travel and to be kept.
Rule: a figure is shown as it was taken. A goal that was missed says by how much, and what holds it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from benchmarks.harness import Summary
from braid.timing import PARTS

OTHERS = {
    "publish": "the driver makes the batch visible",
    "jvm": "Spark: no task of Braid runs",
    "wait": "tasks of Braid wait for rows, or for Spark to take some",
    "around": "Spark before and after the batch: planning, logs of offsets and commits",
}


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    text: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Goal:
    """What was to be reached. `figure` is at least (`>=`) or at most (`<=`) the `target`, or it was missed."""

    name: str
    figure: float
    sense: Literal[">=", "<="]
    target: float
    back: str = ""  # what holds it back

    @property
    def met(self) -> bool:
        return self.figure >= self.target if self.sense == ">=" else self.figure <= self.target

    @property
    def short(self) -> str:
        """By how much the figure misses: the factor that is wanting."""
        if self.met:
            return "reached"
        factor = self.target / self.figure if self.sense == ">=" else self.figure / self.target
        return f"{factor:.2f} x short"


@dataclass(slots=True)
class Report:
    """What a benchmark gives. `taken`: when, on what, with which sizes."""

    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    taken: list[tuple[str, str]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return {
            "taken": [list(x) for x in self.taken],
            "tables": [asdict(t) for t in self.tables],
            "goals": [asdict(g) for g in self.goals],
        }

    @staticmethod
    def of(found: Mapping[str, Any]) -> Report:
        tables = [
            Table(t["title"], t["text"], tuple(t["columns"]), tuple(tuple(row) for row in t["rows"]))
            for t in found["tables"]
        ]
        return Report(tables, [Goal(**g) for g in found["goals"]], [(name, value) for name, value in found["taken"]])


def of_rates(title: str, text: str, figures: dict[str, Summary], base: str | None) -> Table:
    """The usual table: rates, ratios to the variant `base`, CPU."""
    columns = (
        "variant",
        "rows/s",
        *([f"ratio to {base}"] if base else []),
        "trigger ms",
        "CPU s per 1M rows",
        "rows out",
    )
    rows = [
        (
            name,
            f"{f.rate:,.0f}",
            *([f"{f.ratio:.2f}"] if base else []),
            f"{f.ms:,.0f}",
            f"{f.cpu:.2f}",
            f"{f.rows_out:,}",
        )
        for name, f in figures.items()
    ]
    return Table(title, text, columns, tuple(rows))


def of_parts(title: str, parts: Mapping[str, float]) -> Table:
    """Where the time of a batch goes, largest parts first."""
    whole = sum(parts.values())
    ordered = sorted(parts.items(), key=lambda x: -x[1])
    rows = [
        (name, f"{ms:,.0f}", f"{ms / whole:.0%}", PARTS.get(name) or OTHERS.get(name, ""))
        for name, ms in ordered
        if ms >= 0.5
    ]
    return Table(title, "", ("part", "ms", "share", "what it is"), tuple(rows))


def held_back(parts: Mapping[str, float], shown: int = 5) -> str:
    """The largest parts, in words."""
    whole = sum(parts.values())
    ordered = sorted(parts.items(), key=lambda x: -x[1])[:shown]
    return ", ".join(f"{name} {ms / whole:.0%}" for name, ms in ordered)


def of_goals(goals: Sequence[Goal]) -> Table:
    rows = [(g.name, f"{g.figure:.2f}", f"{g.sense} {g.target:g}", g.short, "" if g.met else g.back) for g in goals]
    text = "Where a goal is missed, the last column shows what a batch spends its time on; see the tables below."
    return Table("What was to be reached", text, ("goal", "figure", "target", "", "what holds it back"), tuple(rows))


def terminal(table: Table) -> str:
    widths = [max(len(row[i]) for row in (table.columns, *table.rows)) for i in range(len(table.columns))]
    right = [_numbers(table, i) for i in range(len(widths))]
    lines = [
        "  ".join(x.rjust(w) if r else x.ljust(w) for x, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in (table.columns, *table.rows)
    ]
    return "\n".join([f"\n{table.title}", *([table.text] if table.text else []), "", *lines])


def _numbers(table: Table, column: int) -> bool:
    """Whether a column holds numbers, which stand to the right. The first names the rows."""
    return column > 0 and all(row[column][:1].isdigit() for row in table.rows)


def markdown(table: Table) -> str:
    head = [f"### {table.title}", "", *([table.text, ""] if table.text else [])]
    marks = ["---:" if _numbers(table, i) else "---" for i in range(len(table.columns))]
    lines = [
        f"| {' | '.join(x.replace('|', chr(92) + '|') for x in row)} |" for row in (table.columns, marks, *table.rows)
    ]
    return "\n".join([*head, *lines, ""])


INTRODUCTION = """# Benchmarks

By the stopwatch, from the shell to the last row, over NEXMark's four million events as JSON lines on two cores, Braid
takes 0.38 to 0.60 of Flink's time and 0.30 to 0.45 of that of Spark's own joins (`docs/performance.md` says how it was
measured). This page has what lies inside: joins over columns that lie ready, whose results go nowhere.

Made by `make bench`; `make bench-small` takes a few minutes and says less. Sizes are arguments:
`python -m benchmarks --rows 1000000`; one benchmark alone: `python -m benchmarks interval`; with `--write` its part of
this page is replaced. The figures are kept in `benchmarks.json` beside it.

How figures are taken. Each benchmark has a process and a Spark session of its own. After a warm-up its variants take
turns. Both sides of a comparison read the same rows, in batches of the same size, and write to the same kind of sink;
the number of rows that come out is asserted. Rows/s are steady: the rows of a batch by the median time of a trigger,
the first batch left out. CPU seconds are those of the JVM, all Python workers (ended ones too) and the driver, summed
over the process tree from /proc, for a whole run, first batch included. Spark's own joins run in the session that
`braid` makes (unix sockets, cheap checkpoint files, two shuffle partitions), which speeds them up too. Braid runs
with positions, clocks, checkpoints and ordered output, as users get it. Figures of one run can be compared; those of
two machines, or of a busy one, cannot.
"""


NEXMARK = """# NEXMark by the stopwatch

Made by `make bench-nexmark`: seeded events of an auction house after the published description of NEXMark, as JSON
lines; `braid run` with the defaults, from the shell to its end, into a topic of the store. Spark's start and the files
that are made ready are part of it. The rows that stand at the end must be those of DuckDB.
`python -m benchmarks nexmark --rows 500000 --rounds 1` is shorter.

Beside it, in turn with it, over the same lines: Flink SQL in one process (streaming mode, exactly-once checkpoints
each ten seconds, parallelism 2, two files a kind, as it has a reader for each, object reuse, its state on the heap,
there with mini-batches too, or in RocksDB), and Spark's own joins of streams (two shuffle partitions, until all is
read, its state on the heap or in RocksDB with a changelog). Both write JSON lines into files. *start* is the time until
a query has been handed over; *÷ Braid* is their whole command by Braid's, *without start* the same less the start, of
Braid less all that goes by before its first batch. Each row that they write must be one of DuckDB's. *rows it lacks*:
Spark's joins and windows wait for a watermark, and it cannot be told that nothing follows. It cannot say q4 (a group
over groups). An engine that takes more than 75 s takes one turn, not three.

Braid runs as `make install` and `make java` leave it: with the compiled core where cargo is, and with the archive of
the JVM's classes, which an installed package has from its second run on. Times are texts for all.
"""
KAFKA = """# Benchmarks of Kafka to Kafka

Made by `make bench-kafka` on a real broker, which it fetches and starts (Apache Kafka, one node, on the machine that is
measured), beside Spark's own Kafka connector and Spark's own joins in the same session. Sizes are arguments:
`PYTHONPATH=tests python -m benchmarks kafka --rows 500000`. How figures are taken stands in
`docs/benchmarks.md`. What is different here:

- Both sides read the same topics, with as many records in a batch, and write to a topic of as many partitions. What
  the topics hold at the end is read back by a third client, and must be, row by row, what DuckDB makes of the records.
- **Braid writes each row once** (a transaction for each task and batch); **Spark's sink writes at least once**: a task
  that is done again writes its rows again. Spark writes no times of records, Braid does.
- The broker takes its share of the same cores, and of the CPU seconds.
- Spark's lookup joins the stream with the table as it stood at the start, read once and kept in memory; Braid's reads
  the table as it changes.
"""


def page(reports: Mapping[str, Report], introduction: str = INTRODUCTION) -> str:
    """A page, of the reports by the names of their benchmarks."""
    parts = [introduction]
    goals = [g for r in reports.values() for g in r.goals]
    if goals:
        parts.append(markdown(of_goals(goals)))
    for name, report in reports.items():
        taken = "".join(f"- {what}: {value}\n" for what, value in report.taken)
        parts += [f"## {name}\n", taken, *(markdown(t) for t in report.tables)]
    return "\n".join(parts)
