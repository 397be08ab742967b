"""Commands that keep a store in order, from upgrade to copy.

In: arguments. Out: lines of what was done or is wrong; exit 1 if something is.
Rule: as in `cli.py`, which has them: a command reads arguments, calls one function, prints.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from braid.errors import BraidError
from braid.face.options import (
    PLACE,
    at_least_once_option,
    folder_of,
    functions_option,
    kafka_options,
    named_in,
    pairs,
    places_options,
    read_sql,
    sql_or_name_options,
    store_option,
)
from braid.face.tabular import Terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braid.store import ObjectStore
    from braid.topics.interface import Topics
    from braid.topics.lock import StoreLock
    from braid.topics.store_value import Store

err = Terminal(stderr=True)
COMMANDS: list[click.Command] = []


def command(function: Callable[..., Any]) -> click.Command:
    made = click.command()(function)
    COMMANDS.append(made)
    return made


@command
@sql_or_name_options
@store_option
@places_options
@click.option("--master", default="local[*]", show_default=True, help="Run on this Spark master.")
@functions_option
@kafka_options
@at_least_once_option
def upgrade(file: str | None, text: str | None, dialect: str | None, master: str, **wanted: Any) -> None:
    """Let changed queries of a file go on, or a query of the store by its name.

    Each query goes on, is new, or has changed. A changed one is rebuilt over what it has read, and takes the place
    of the old one behind the last record of that: nothing is missing in its result, and nothing there twice.
    What a stream has written stays as it is; the rows of a table are corrected.
    """
    from braid.face.engine import Engine
    from braid.face.request import Request
    from braid.face.run import jvm_pid, spark_session
    from braid.face.upgrade import upgrade as told
    from braid.spark.query_options import RunOptions

    named = named_in(wanted["store"], dialect, wanted["functions"])
    sql, dialect = read_sql(file, text, dialect, named)
    wanted |= {name: pairs(wanted[name], f"--{name.rstrip('s')}") for name in ("sources", "sinks", "deleted")}
    request = Request(sql, dialect, asked=RunOptions.taken(wanted), master=master, folder=folder_of(file), **wanted)
    with contextlib.ExitStack() as stack:

        @functools.cache
        def spark(own: StoreLock) -> SparkSession:
            begun = stack.enter_context(spark_session(request))
            if (jvm := jvm_pid(begun)) is not None:
                own.add_pid(jvm)
            return begun

        def made(store: Topics, own: StoreLock) -> Engine:
            return Engine(store, lambda: spark(own), begins=request.asked.begins)

        for line in told(request, made):
            click.echo(line)


@command
@click.argument("query")
@click.option("--cascade", is_flag=True, help="Reset also the queries that read its output, or write there too.")
@click.option("--checkpoint", type=PLACE, help="Find the checkpoint in this folder. [default: STORE/checkpoints]")
@click.option(
    "--delete-topic", is_flag=True, help="Delete its topic in Kafka, too; else it gets all results once more."
)
@store_option
@kafka_options
def reset(
    query: str,
    cascade: bool,
    checkpoint: ObjectStore | None,
    delete_topic: bool,
    store: Store,
) -> None:
    """Let a query begin again: remove its checkpoint, its output and its drops."""
    from braid.face import reset as resetting

    for line in resetting.reset(store, query, checkpoint, cascade, delete_topic):
        click.echo(line)


@command
@click.argument("query")
@click.option(
    "--buckets", type=click.IntRange(min=1), help="Split the keys into so many buckets. [default: two a task, at least]"
)
@click.option("--tasks", type=click.IntRange(min=1), help="Run so many tasks a stage. [default: as many as it has]")
@click.option("--checkpoint", type=PLACE, help="Find the checkpoint in this folder. [default: STORE/checkpoints]")
@store_option
def rescale(
    query: str, buckets: int | None, tasks: int | None, checkpoint: ObjectStore | None, store: ObjectStore
) -> None:
    """Let a query go on in other buckets and tasks, with its state.

    When it starts again its state is split or merged; no input is read again, and what it gives is the same. Its
    output keeps its partitions, of which the buckets are a multiple.
    """
    from braid.face import rescale as rescaling

    for line in rescaling.rescale(store, query, buckets, tasks, checkpoint):
        click.echo(line)


@command
@click.argument("topic")
@click.option("--checkpoint", type=PLACE, help="Find the checkpoint in this folder. [default: STORE/checkpoints]")
@store_option
@kafka_options
def rm(topic: str, checkpoint: ObjectStore | None, store: Store) -> None:
    """Remove a topic that no query reads or writes."""
    from braid.face.reset import remove_topic

    for line in remove_topic(store, topic, checkpoint):
        click.echo(line)


@command
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of tables; bytes and times are numbers."
)
@click.option("--checkpoint", type=PLACE, help="Read one more folder of checkpoints than the store knows.")
@store_option
def usage(store: ObjectStore, checkpoint: ObjectStore | None, as_json: bool) -> None:
    """Show what a store holds, who needs it, and what may be deleted.

    A row for each topic: its records, their times, who reads it and how far; for each query: its state and its
    checkpoint; for each
    orphan: the command that deletes it. Also while queries run.
    """
    from braid.face.usage import print_usage

    print_usage(store, checkpoint, as_json)


@command
@click.argument("topic", required=False)
@click.option("--for", "span", metavar="SPAN", help="Delete records that are older: 7d, 12h, 30m.")
@click.option("--bytes", "size", metavar="N", help="Delete the oldest records of each partition above that: 10GB.")
@click.option("--compact/--no-compact", default=None, help="Keep only the last record of each key.")
@click.option("--tombstones", metavar="SPAN", help="Keep a tombstone so long in a compacted topic. [default: 1d]")
@click.option("--all", "all_", is_flag=True, help="Keep all records, but for what the other options say.")
@click.option("--dry-run", "dry", is_flag=True, help="Show only what would go; nothing is set and no record goes.")
@click.option("--yes", is_flag=True, help="Skip the question that is asked where most records would go.")
@click.option("--checkpoint", type=PLACE, help="Read one more folder of checkpoints than the store knows.")
@store_option
def retain(topic: str | None, span: str | None, size: str | None, tombstones: str | None, **more: Any) -> None:
    """Set what a topic keeps, and let the rest go.

    Runs do it from then on; this does it now, also beside a run. Without options it shows what is set; without TOPIC it
    does it for all topics. No record goes that a query may still read. Where most records of the topic would go it asks
    first. Topics in Kafka are kept as Kafka is configured.
    """
    from braid.face import retain as retaining

    ms = None if span is None else retaining.milliseconds_of("--for", span)
    most = None if size is None else retaining.bytes_of("--bytes", size)
    dead = None if tombstones is None else retaining.milliseconds_of("--tombstones", tombstones)
    wanted = {"ms": ms, "size": most, "compact": more["compact"], "tombstones": dead}
    asked = more["all_"] or any(x is not None for x in wanted.values())
    if asked and topic is None:
        raise BraidError("what is to be kept is said of one topic", "braid retain TOPIC …")
    change = functools.partial(retaining.changed, **wanted, all_=more["all_"]) if asked else None
    sure = (lambda what: None) if more["yes"] else _sure
    for line in retaining.retain(more["store"], topic, change, more["checkpoint"], sure, more["dry"]):
        click.echo(line)


def _sits_there() -> bool:
    return sys.stdin.isatty()


def _sure(what: str) -> None:
    """Asks the user; without a terminal the answer is no."""
    if not _sits_there():
        raise BraidError(what, "the same command with --yes does it; --dry-run shows it, and does nothing")
    click.confirm(f"{what}. Go on?", abort=True)


@command
@click.option("--checkpoint", type=PLACE, help="Read one more folder of checkpoints than the store knows.")
@store_option
def sweep(store: ObjectStore, checkpoint: ObjectStore | None) -> None:
    """Delete orphan files: what killed commands and runs have left.

    `braid usage` lists it. No record, state or setting goes; no run may be on.
    """
    from braid.face.orphans import sweep as swept

    for line in swept(store, checkpoint):
        click.echo(line)


@command
@click.option("--checkpoint", type=PLACE, help="Read one more folder of checkpoints than the store knows.")
@store_option
def verify(store: ObjectStore, checkpoint: ObjectStore | None) -> None:
    """Check whether a store is whole, and its parts belong together.

    Every checksum is compared, and for each query: is its state that of the records it has read, are these still in
    its topics, does its output hold what it has written. Exit code 1 if something is wrong.
    """
    from braid.face.verify import verify as told

    _looked_at(told(store, checkpoint), store)


def _looked_at(told: Iterable[str | BraidError], store: object) -> None:
    """What a look at a store says. What is wrong comes as it is found, and is the end only when all is told."""
    wrong = 0
    for x in told:
        if isinstance(x, BraidError):
            wrong += 1
            err.print(x.render(), style="red", markup=False)
        else:
            click.echo(x)
    if wrong:
        raise BraidError(f"{wrong} thing{'s are' if wrong > 1 else ' is'} wrong in {store}")
    click.echo(f"{store} is whole")


@command
@click.argument("target", type=click.Path(), metavar="FOLDER|URL")
@store_option
def backup(target: str, store: ObjectStore) -> None:
    """Copy a store into FOLDER, or to a URL, also while queries run on it.

    The copy is the store at one moment, and is checked as by `braid verify`. A FOLDER is a store itself: name it
    by --store, and all goes on from there. A URL (s3://BUCKET/PATH, gs://, az://, file:///FOLDER) takes many backups of
    one store, each named by its time; what is there already is not sent again. `braid restore` makes a store of one.
    """
    from braid.face.backup import backup as told

    _looked_at(told(store, target), target)


@command
@click.argument("source", type=PLACE, metavar="FROM")
@click.argument("target", type=PLACE, metavar="TO")
def copy(source: ObjectStore, target: ObjectStore) -> None:
    """Make a store at TO of the store at FROM, which no run uses: from a folder to an object store, or back.

    Topics have the same records at the same offsets, and queries go on there where they were; `braid rescale` lets
    them have as many tasks as there are. TO is a folder that is not there, or a URL under which nothing is. It is
    checked as by `braid verify`.
    """
    from braid.face.copy import copy as told

    _looked_at(told(source, target), target)


@command
@click.argument("source", type=click.Path(), metavar="FROM")
@click.argument("folder", type=click.Path())
@click.option("--at", metavar="NAME", default=None, help="Take this one of a URL's backups. [default: the newest]")
def restore(source: str, folder: str, at: str | None) -> None:
    """Make a store in FOLDER from a backup: a folder or a URL that `braid backup` has filled.

    Every checksum is compared; FOLDER is there when all of it is, and is checked as by `braid verify`.
    """
    from braid.face.restore import restore as told

    _looked_at(told(source, folder, at), folder)
