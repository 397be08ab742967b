"""The command line.

In: arguments. Out: data on stdout, notes and progress on stderr; exit 0 done, 1 the user's
error, 2 a query died or a bug of ours.
Rule: an error a user can cause is one message with what, where and what to write instead; a stack trace only with
`--verbose`. Commands are thin: they read arguments, call one function, print.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from braid import allocator
from braid.bind.dialects import DIALECTS
from braid.errors import BraidError, QueryDied, TooManyDrops, printable, printable_lines
from braid.face.maintenance import COMMANDS
from braid.face.options import (
    PLACE,
    at_least_once_option,
    dead_letters_option,
    durable_option,
    file_option,
    files_options,
    folder_of,
    functions_option,
    kafka_options,
    named_in,
    pairs,
    read_sql,
    sql_options,
    sql_or_name_options,
    store_option,
)
from braid.face.reporting import REPORTS
from braid.face.tabular import Terminal
from braid.store import objects

if TYPE_CHECKING:
    from braid.expr.user import Functions
    from braid.store import ObjectStore
    from braid.topics.store_value import Store

out = Terminal()
err = Terminal(stderr=True)


PAGED = frozenset({"why", "why-not"})  # commands that read a page at a time, and keep nothing for the next one


class Braid(click.Group):
    """Turns errors into messages and exit codes."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **kwargs: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        if args is None and not PAGED.intersection(words[:2]):  # the process is the command's own
            os.environ.update(allocator.told(os.environ))
        kwargs["obj"] = args is None
        verbose = "--verbose" in words  # wherever it stands
        words = [w for w in words if w != "--verbose"]
        kwargs["standalone_mode"] = False
        objects.at_start(lambda text: err.print(text, markup=False))
        try:
            code = super().main(words, *more, **kwargs)
            code = code if isinstance(code, int) else 0
        except (click.exceptions.Abort, KeyboardInterrupt):
            err.print("interrupted")
            code = 130
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be flushed
            code = 0
        except Exception as e:
            code = _told(e)
            if verbose:
                traceback.print_exc()
        finally:
            objects.at_start(None)
        if args is None:
            gc.freeze()  # what is there at the end goes with the process: it is not looked through for circles
        sys.exit(code)


def _told(e: Exception) -> int:
    """Says what went wrong; gives the exit code."""
    match e:
        case click.ClickException():
            e.show()
            return 1
        case BraidError():
            err.print(e.render(), style="red", markup=False)
            return 1
        case QueryDied():
            err.print(f"error: {e}", style="red", markup=False)
            return 2
        case TooManyDrops():
            err.print(f"error: {e}", style="red", markup=False)
            return 3
        case OSError():
            where = f"{os.fsdecode(e.filename)}: " if isinstance(e.filename, str | bytes) else ""
            err.print(printable(f"error: {where}{e.strerror or e}"), style="red", markup=False)
            return 1
        case MemoryError():
            err.print("error: there is not enough memory\n  hint: take less at once: --batch-rows", style="red")
            return 1
        case _:
            err.print(f"internal error: {type(e).__name__}: {e}", style="red", markup=False)
            err.print("  hint: this is a bug of Braid's; run it again with --verbose and report what it says")
            return 2


@click.group(cls=Braid, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="braid-sql", prog_name="braid")
@click.option("--verbose", is_flag=True, help="Show the stack trace of an error.")
def main(verbose: bool) -> None:
    """Streaming SQL joins on Spark, with the meaning of the system you know."""


for _kept in (*COMMANDS, *REPORTS):
    main.add_command(_kept)


@contextlib.contextmanager
def _spark_begins(master: str, conf: Mapping[str, str]) -> Iterator[None]:
    """Where the process is the command's own, Spark's JVM begins while this reads its modules and its SQL; it takes
    longer than both."""
    if not click.get_current_context().obj:
        yield
        return
    from braid.spark.conf import abandon, begin
    from braid.spark.jvm import CARRIER

    begin(master, CARRIER | dict(conf))
    try:
        yield
    finally:
        abandon()


# ----------------------------------------------------------------- commands


@main.command()
@sql_options
@store_option
@files_options
@click.option("--master", default=None, help="Run on this Spark master. [default: local[*]]")
@click.option("--until-idle", is_flag=True, help="End when all input present at the start has been processed.")
@click.option(
    "--from",
    "begins",
    multiple=True,
    metavar="[TOPIC:]WHERE",
    help="Let a new query begin at WHERE: earliest, latest, a time; of a TOPIC also 0=15,1=20. [default: earliest]",
)
@click.option(
    "--end", "close", is_flag=True, help="End as with --until-idle, and give what waits for a time: no more will come."
)
@click.option(
    "--idle",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Let a partition without records for so long not hold the clock, in a run that stays up. [default: never]",
)
@click.option(
    "--conf", "conf", multiple=True, metavar="K=V", help="Set a setting of Spark; may be given more than once."
)
@click.option(
    "--batch-rows", "limit", type=click.IntRange(min=1), help="Read at most so many records a batch. [default: 1000000]"
)
@click.option(
    "--tasks", type=click.IntRange(min=1), help="Give a new query so many tasks a stage; it keeps that number."
)
@click.option(
    "--metrics", metavar="FILE|-", help="Append a JSON line for each batch: where its time went (docs/metrics.md)."
)
@click.option("--metrics-port", metavar="[HOST:]PORT", help="Serve metrics to Prometheus. [default host: 127.0.0.1]")
@click.option("--max-drops", metavar="N|N%", help="End with exit code 3 when a query drops more rows than that.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.5),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Poll tables that lie elsewhere every SECONDS, in a run that stays up.",
)
@click.option(
    "--accept-deletes",
    is_flag=True,
    help="Accept a poll in which most rows of a snapshot: are missing, or a whole column is NULL.",
)
@click.option("--fail-fast", is_flag=True, help="End the other queries, too, when one dies.")
@click.option("--quiet", is_flag=True, help="Print no progress; only report what was dropped.")
@durable_option
@functions_option
@dead_letters_option
@at_least_once_option
@kafka_options
def run(
    file: str | None, text: str | None, dialect: str | None, master: str | None, max_drops: str | None, **wanted: Any
) -> None:
    """Run the statements of a file.

    Stays up until Ctrl-C and reads what comes, or with --until-idle until the input that was there at the start has
    been processed; with --end nothing will follow it, and what waits for a later time goes out. The same command again
    goes on where the last run ended, however it ended.

    Exit code: 0 done, or stopped by Ctrl-C where there was no other end; 130 stopped by Ctrl-C before --until-idle came
    to its end; 1 something to mend in the SQL, the options or the files; 2 a query died; 3 --max-drops was exceeded.
    """
    sql, dialect = read_sql(file, text, dialect)
    named = {name: pairs(wanted[name], f"--{name.rstrip('s')}") for name in ("sources", "sinks", "deleted", "conf")}
    with _spark_begins(master or "local[*]", named["conf"]):
        from braid.face.begin import begins_of
        from braid.face.metrics import MaxDrops
        from braid.face.request import Request
        from braid.face.run import run_program
        from braid.spark.query_options import RunOptions

        most = None if max_drops is None else MaxDrops.of(max_drops)
        wanted |= named | {"begins": begins_of(wanted["begins"])}
        wanted["until_idle"] |= wanted["close"]
        asked, where = RunOptions.taken(wanted), master or "local[*]"
        request = Request(sql, dialect, asked=asked, master=where, max_drops=most, folder=folder_of(file), **wanted)
        outcome = run_program(request, err)
    if outcome.interrupted and request.until_idle:
        raise click.exceptions.Exit(130)


@main.command()
@sql_or_name_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "mermaid", "dot"]),
    default="text",
    show_default=True,
    help="Print plans in this form.",
)
@click.option("--state", is_flag=True, help="Add live rows and bytes from the last committed batch.")
@store_option
@functions_option
@at_least_once_option
@kafka_options
def explain(
    file: str | None,
    text: str | None,
    dialect: str | None,
    form: str,
    state: bool,
    store: Store,
    functions: Functions,
) -> None:
    """Show the plan of each query of a file, or of a query of the store by its name.

    Which join it is, its keys, what state is kept and until when, the changelog mode, exchanges, what was refused.
    """
    from braid.explain.documents import explain_program, render_dot, render_mermaid, render_texts
    from braid.face.catalogue import over

    sql, dialect = read_sql(file, text, dialect, named_in(store, dialect, functions))
    documents = explain_program(sql, over(store, dialect, functions, folder_of(file)), store.objects if state else None)
    if (delivery := store.delivery) is not None:
        documents = [d | {"delivery": delivery} for d in documents]
    if form == "json":
        out.print_json(json.dumps(documents[0] if len(documents) == 1 else documents, default=str))
        return
    for refusal in (r for d in documents for r in d["refusals"]):
        err.print(refusal["text"], style="red", markup=False)
    planned = [d for d in documents if d["nodes"]]
    if planned:
        render = {"text": render_texts, "mermaid": render_mermaid, "dot": render_dot}[form]
        click.echo(printable_lines(render(planned)))
        if delivery is not None and form == "text":
            click.echo(f"results go to Kafka at {store} {delivery}")
    if not documents:
        err.print("no query in it: EXPLAIN shows CREATE … AS SELECT, INSERT INTO … SELECT and SELECT")
    if any(d["refusals"] for d in documents):
        raise click.exceptions.Exit(1)


@main.command()
@sql_or_name_options
@store_option
@files_options
@functions_option
@kafka_options
def check(file: str | None, text: str | None, dialect: str | None, **wanted: Any) -> None:
    """List every problem of a file, and what its queries would do on the store, or a query by its name; run nothing.

    Each query goes on, is new, or cannot go on, and why. The options of the run, such as --source and --sink, are given
    here, too; without them, those of the last run are taken. Exit code: 1 where a run would refuse the file.
    """
    from braid.face.deployment import checked
    from braid.face.request import Request
    from braid.spark.query_options import RunOptions

    named = named_in(wanted["store"], dialect, wanted["functions"])
    sql, dialect = read_sql(file, text, dialect, named)
    wanted |= {name: pairs(wanted[name], f"--{name.rstrip('s')}") for name in ("sources", "sinks", "deleted")}
    if not checked(Request(sql, dialect, asked=RunOptions.taken(wanted), folder=folder_of(file), **wanted), err):
        raise click.exceptions.Exit(1)


@main.command()
@click.argument("paths", nargs=-1, required=True)
@click.option("--spark", is_flag=True, help="Run on Spark instead of the local runtime.")
@click.option(
    "--runtime", type=click.Choice(["local", "spark", "reference"]), help="Run on this runtime. [default: local]"
)
@click.option(
    "--batch", type=click.IntRange(min=1), default=None, help="Read at most so many records a batch. [default: all]"
)
@click.option("--accept", is_flag=True, help="Write the actual rows into the output blocks.")
def test(paths: tuple[str, ...], spark: bool, runtime: str | None, batch: int | None, accept: bool) -> None:
    """Run case files (Markdown timelines), and tests in SQL (ksqlDB's `--@test`)."""
    from braid.testing.cases import accepted, case_files, run_case

    failed = passed = 0
    pages = case_files(paths)
    if not pages:
        raise BraidError(f"no case files in {', '.join(paths)}", "a case is a Markdown file (.md) with fenced blocks")
    for path in pages:
        outcome = run_case(path, runtime or ("spark" if spark else "local"), batch)
        if accept and outcome.actual:
            path.write_text(accepted(path.read_text(encoding="utf-8"), outcome), encoding="utf-8")
            click.echo(f"wrote {path}")
            continue
        if outcome.failures:
            failed += 1
            click.echo(f"FAIL  {path}")
            for line, message in outcome.failures:
                click.echo(f"  {path}:{line}: {message}")
        else:
            passed += 1
            click.echo(f"ok    {path}  ({outcome.blocks} {'tests' if path.suffix == '.sql' else 'blocks'})")
    if not accept:
        click.echo(f"{passed} passed, {failed} failed")
    if failed:
        raise click.exceptions.Exit(1)


@main.command()
@click.argument("file", type=click.Path())
@click.option(
    "--dialect", type=click.Choice(DIALECTS), default="ksqldb", show_default=True, help="Write it in this SQL."
)
@click.option("--name", help="Name the stream or table. [default: as the file]")
@click.option("--key", metavar="COLUMN", help="Make this column the key.")
@click.option("--table", is_flag=True, help="Declare a table: a row is current until one with its key comes.")
def infer(file: str, dialect: str, name: str | None, key: str | None, table: bool) -> None:
    """Write the declaration of a CSV, JSON lines or Parquet file.

    Types are those of its first rows: check them before you use it.
    """
    from braid.face.infer import statement

    click.echo(statement(file, dialect, name, key, "table" if table else "stream"))


@main.command()
@store_option
@kafka_options
def topics(store: Store) -> None:
    """List the topics of the store, or of a broker."""
    from braid.face.show import print_topics

    print_topics(store)


@main.command()
@click.argument("topic")
@click.option("--follow", is_flag=True, help="Wait for more records, until Ctrl-C.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl", "csv"]),
    default="table",
    show_default=True,
    help="Print records in this form.",
)
@click.option("--limit", type=click.IntRange(min=0), default=None, help="Print at most so many records.")
@click.option(
    "--tail", type=click.IntRange(min=0), default=None, help="Print the last so many records of each partition."
)
@click.option("--key", metavar="KEY", help="Print only records with this key: JSON, or a text.")
@click.option(
    "--from", "since", metavar="TIME", help="Print only records from this time on: ISO 8601, or ms since 1970."
)
@click.option("--latest", is_flag=True, help="Print the last record of each key: the current table.")
@store_option
@kafka_options
def cat(topic: str, form: str, since: str | None, store: Store, **which: Any) -> None:
    """Print the records of a topic."""
    from braid.face import tabular
    from braid.face.show import Wanted, print_topic

    begin = None if since is None else tabular.time_option("--from", since)
    try:
        print_topic(store, topic, Wanted(since=begin, **which), form)
    except KeyboardInterrupt:
        if not which["follow"]:
            raise


@main.command()
@click.argument("topic")
@click.argument("file", required=False, type=click.Path())
@click.option(
    "--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="Create a new topic with so many."
)
@store_option
@kafka_options
def put(topic: str, file: str | None, partitions: int, store: Store) -> None:
    """Append JSON lines to a topic (from FILE or stdin).

    A line is a record with key, value and timestamp (ms, or ISO 8601; without one it is now):
    {"key": 1, "value": {"V": "a"}, "timestamp": 0}
    """
    from braid.face.show import put_records

    try:
        lines = sys.stdin if file is None or file == "-" else Path(file).open(encoding="utf-8")  # noqa: SIM115
    except OSError as e:
        raise BraidError(f"cannot read {file}: {e.strerror}") from None
    with lines:
        count = put_records(store, topic, lines, partitions)
    err.print(f"{count} record{'s' * (count != 1)} into {topic}")


@main.command()
@click.option(
    "--data",
    type=click.Path(),
    default=None,
    help="Read a folder that braid.demo.make_data has made. [default: January]",
)
@click.option("--store", type=PLACE, default=None, help="Keep the topics here. [default: a temporary folder]")
def demo(data: str | None, store: ObjectStore | None) -> None:
    """Join New York's flights to planes and weather."""
    from braid.demo.show import run_demo

    run_demo(data, store, out, err)


@main.command()
@click.option("--java", is_flag=True, help="Check only Java; say nothing if it is fine.")
@click.option("--quick-start", is_flag=True, help="Make the file (150 MB) with which Spark starts a third faster, now.")
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Check the cluster of this Spark master: its workers, its channels.",
)
@click.option("--conf", "conf", multiple=True, metavar="K=V", help="Set a setting of Spark, as for `braid run`.")
@click.option("--query", metavar="QUERY", help="Find what is wrong with a query of the store; it may run meanwhile.")
@click.option(
    "--history", is_flag=True, help="Print with --query what each batch of the last hour was like: JSON lines."
)
@click.option("--json", "as_json", is_flag=True, help="Print with --query one JSON object.")
@click.option(
    "--checkpoint", type=PLACE, help="Read the query's checkpoint in this folder. [default: STORE/checkpoints]"
)
@store_option
@functions_option
@file_option
@kafka_options
def doctor(java: bool, quick_start: bool, master: str, conf: tuple[str, ...], query: str | None, **more: Any) -> None:
    """Say what this machine has and what is missing; with --master what the workers of a cluster have, too.

    With --query: what is wrong with a query, worst first: it failed, a stuck clock (watermark), no match, growing lag,
    a hot bucket (data skew), unbounded state, retries, drops, small batches (docs/troubleshooting.md).

    Exit code: 0 all is well; 1 something is missing, or was found.
    """
    from braid.face import doctor as doctoring
    from braid.face.quick_start import make

    store = more["store"]
    if query is not None:
        from braid.face.findings import print_findings, print_history

        if more["history"]:
            print_history(store, query, more["checkpoint"])
        elif not print_findings(store, query, more["functions"], more["checkpoint"], more["as_json"], more["file"]):
            raise click.exceptions.Exit(1)
        return
    if more["history"] or more["as_json"] or more["checkpoint"] is not None or more["file"] is not None:
        raise BraidError("--history, --json, --file and --checkpoint need --query", "braid doctor --query QUERY")
    if quick_start:
        with err.status("An archive of Spark's classes is made, about a minute …"):
            out.print(f"Spark starts quickly: {make()}", markup=False)
        return

    if not doctoring.examine(java, out, master, pairs(conf, "--conf"), store):
        raise click.exceptions.Exit(1)


@main.command()
@click.argument("folder", type=click.Path())
def pack(folder: str) -> None:
    """Write into FOLDER what the workers of a cluster need: two archives, Braid and its libraries.

    They are of this Python and this system. `braid run --master` sends them by itself to workers that lack them; these
    are for spark-submit, and for clusters that fetch them from elsewhere (docs/cluster.md).
    """
    from braid.spark.packing import copied, told

    with err.status("Braid's libraries are packed, about a minute …"):
        made = copied(folder)
    for line in told(made):
        click.echo(line)


@main.command()
@sql_options
@store_option
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME=PATH|KIND:…",
    help="Read files in place of a topic, declared if need be; or poll a declared table elsewhere (docs/tables.md).",
)
@click.option("--master", default="local[*]", show_default=True, help="Run on this Spark master.")
@functions_option
@dead_letters_option
@at_least_once_option
@kafka_options
def sql(
    file: str | None,
    text: str | None,
    dialect: str | None,
    store: Store,
    sources: tuple[str, ...],
    master: str,
    functions: Functions,
) -> None:
    """Type statements and see what they give.

    FILE or -e SQL is carried out first. History, completion (Tab), `.help`; Ctrl-C ends the rows of a SELECT … EMIT
    CHANGES, Ctrl-D the prompt. Without a terminal the statements come from stdin, a SELECT ends where its records end,
    and the exit code is 1 if a statement was refused.
    """
    from braid.face.shell import Shell, pieces

    first, dialect = read_sql(file, text, dialect) if file or text else ("", dialect or "ksqldb")
    live = sys.stdin.isatty() and sys.stdout.isatty()
    shell = Shell(dialect, store, out, err, live, master, pairs(sources, "--source"), functions)
    try:
        rest = "" if live else sys.stdin.read()
        shell.declare(f"{first};{rest}")
        going = all(shell.run(piece) for piece in pieces(first, shell))
        if going and live:
            from braid.face.prompt import interact

            interact(shell)
        elif going:
            all(shell.run(piece) for piece in pieces(rest, shell))
        shell.news()
    finally:
        shell.close()
    if shell.failed and not live:
        raise click.exceptions.Exit(1)


if __name__ == "__main__":
    main()
