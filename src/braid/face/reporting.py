"""Commands that show what queries have dropped, and which rows wait.

In: arguments. Out: tables, or JSON lines.
Rule: as in `cli.py`, which has them: a command reads arguments, calls one function, prints.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from braid.bind.dialects import DIALECTS
from braid.face.options import PLACE, file_option, folder_of, functions_option, kafka_options, read_sql, store_option

if TYPE_CHECKING:
    from braid.expr.user import Functions
    from braid.face.plans import File
    from braid.store import ObjectStore

form_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl"]),
    default="table",
    show_default=True,
    help="Print a table, or JSON lines.",
)
rows_option = click.option(
    "--limit", type=click.IntRange(min=0), default=None, help="Print at most so many rows. [default: 20, jsonl: all]"
)


@click.command()
@click.argument("query", metavar="[QUERY|FILE]", required=False)
@form_option
@rows_option
@click.option("--key", metavar="KEY", help="Show only rows with this key: JSON, or a text.")
@click.option(
    "--dialect", type=click.Choice(DIALECTS), help="Read FILE in this SQL. [default: its first line, else ksqldb]"
)
@store_option
@functions_option
def drops(
    query: str | None,
    form: str,
    limit: int | None,
    key: str | None,
    dialect: str | None,
    store: ObjectStore,
    functions: Functions,
) -> None:
    """Show the rows that a query dropped, and why.

    Of a FILE of statements, those of each of its queries; without either, those of all queries of the store.
    """
    from braid.face.catalogue import over
    from braid.face.show import print_drops
    from braid.topics.store_value import Store

    names = None if query is None else [query]
    if query is not None and os.path.isfile(query):
        sql, spoken = read_sql(query, None, dialect)
        program = over(Store(store), spoken, functions, folder_of(query))
        names = [e.query.name for e in program.statements(sql) if e.query is not None]
    print_drops(store, names, form, limit, key)


@click.command()
@click.argument("query")
@form_option
@rows_option
@click.option(
    "--checkpoint", type=PLACE, help="Read the query's checkpoint in this folder. [default: STORE/checkpoints]"
)
@store_option
@functions_option
@file_option
def waiting(
    query: str,
    form: str,
    limit: int | None,
    checkpoint: ObjectStore | None,
    store: ObjectStore,
    functions: Functions,
    file: File | None,
) -> None:
    """Show the buffered rows of a query: those that wait for a clock to go out, and for how long.

    They are those after its last batch, whether it runs or not.
    """
    from braid.face.waiting import print_waiting

    print_waiting(store, query, form, limit, checkpoint, functions, file)


@click.command("why-not")
@click.argument("query")
@click.option("--key", metavar="KEY", help="Show the records of this key, or joined by it: JSON, or a text.")
@click.option("--input", "place", metavar="TOPIC:PARTITION:OFFSET", help="Show one record.")
@click.option("--since", metavar="TIME", help="Show how many records read since then gave rows, by reason (UTC).")
@click.option("--until", metavar="TIME", help="Show with --since only records before this time.")
@click.option("--event-time", is_flag=True, help="Take with --since the records' own times.")
@click.option(
    "--what-if",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    help="Find in so many seconds the smallest change that would have made a row; 0: none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@file_option
@click.option("--no-values", is_flag=True, help="Show no keys and values of records.")
@click.option(
    "--checkpoint", type=PLACE, help="Read the query's checkpoint in this folder. [default: STORE/checkpoints]"
)
@store_option
@functions_option
@kafka_options
def why_not(
    query: str,
    place: str | None,
    file: File | None,
    as_json: bool,
    no_values: bool,
    checkpoint: ObjectStore | None,
    since: str | None,
    **more: Any,
) -> None:
    """Say why a row is missing: what became of records of a query, step by step.

    The definitions of its joins judge what it has read, up to its last batch; it may run meanwhile.
    """
    from braid.why.command import Question, print_answer
    from braid.why.command import why_not as told

    what = Question(more["key"], place, since, more["until"], more["event_time"], not no_values, file, more["what_if"])
    answer = told(more["store"], query, what, more["functions"], checkpoint)
    print_answer(answer, as_json)


@click.command()
@click.argument("topic")
@click.option("--offset", type=click.IntRange(min=0), help="Show the row at this offset.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Find it in this partition.")
@click.option("--key", metavar="KEY", help="Show the last rows of this key: JSON, or a text.")
@click.option(
    "--depth",
    type=int,
    default=1,
    show_default=True,
    help="Read through so many queries, where one writes what another reads.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@file_option
@click.option("--no-values", is_flag=True, help="Show no keys and values of records.")
@click.option("--checkpoint", type=PLACE, help="Read checkpoints in this folder. [default: STORE/checkpoints]")
@store_option
@functions_option
@kafka_options
def why(
    topic: str,
    offset: int | None,
    partition: int | None,
    as_json: bool,
    no_values: bool,
    file: File | None,
    checkpoint: ObjectStore | None,
    **more: Any,
) -> None:
    """Say why a row is there: which records it was made of, by which steps, and what let it go.

    TOPIC is one that a query of the store writes.
    """
    from braid.why.command import Which, print_answer
    from braid.why.command import why as told

    which = Which(offset, partition, more["key"], more["depth"], not no_values, file)
    print_answer(told(more["store"], topic, which, more["functions"], checkpoint), as_json)


REPORTS: tuple[click.Command, ...] = (drops, waiting, why, why_not)
