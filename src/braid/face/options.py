"""Options that several commands have, and what they mean.

In: words of a command line. Out: decorators of commands; the SQL, pairs, a broker, functions.
Rule: an option is called, and read, the same at every command.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from braid.bind.dialects import DIALECTS
from braid.errors import BraidError
from braid.store import ObjectStore, opened

if TYPE_CHECKING:
    from braid.topics.store_value import Store

Decorated = Callable[..., Any]


def sql_options(command: Decorated) -> Decorated:
    return _sql_options(command, "FILE")


def sql_or_name_options(command: Decorated) -> Decorated:
    """The same, and a query of the store may be named."""
    return _sql_options(command, "FILE|NAME")


def _sql_options(command: Decorated, shown: str) -> Decorated:
    command = click.argument("file", required=False, type=click.Path(), metavar=f"[{shown}]")(command)
    command = click.option("-e", "--execute", "text", metavar="SQL", help="Run this SQL text instead of a file.")(
        command
    )
    return click.option(
        "--dialect",
        type=click.Choice(DIALECTS),
        help="Read the text in this SQL. [default: the file's first line, else ksqldb]",
    )(command)


class _Place(click.ParamType[ObjectStore]):
    """A folder, or the URL of one."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ObjectStore:
        return value if isinstance(value, ObjectStore) else opened(value)


PLACE = _Place()

STORE = "./braid-data"  # that commands take by themselves

store_option = click.option(
    "--store",
    type=PLACE,
    default=STORE,
    show_default=True,
    help="Keep topics and checkpoints in this folder, or at s3://…, gs://…, az://… (docs/object-stores.md).",
)


def kafka_options(command: Decorated) -> Decorated:
    """`--kafka HOST:PORT [--kafka-config FILE] [--registry URL [--registry-config FILE]]` as part of the argument
    `store`; and `--at-least-once`, `--dead-letters` where they are given."""

    @functools.wraps(command)
    def with_broker(
        *args: Any,
        store: ObjectStore,
        kafka: str | None,
        kafka_config: str | None,
        registry: str | None,
        registry_config: str | None,
        at_least_once: bool = False,
        dead_letters: str | None = None,
        **more: Any,
    ) -> Any:
        from braid.topics.broker import broker_of
        from braid.topics.store_value import Store

        broker = broker_of(kafka, kafka_config, registry, registry_config, at_least_once, dead_letters)
        return command(*args, store=Store(store, broker), **more)

    options = (
        ("--kafka", "HOST:PORT", "Use the topics of this Kafka; STORE keeps the rest."),
        ("--kafka-config", "FILE", "Read settings of Kafka's client (librdkafka) from a file: security."),
        ("--registry", "URL", "Use this schema registry for the records in Kafka."),
        (
            "--registry-config",
            "FILE",
            "Read settings of the registry's client (confluent-kafka) from a file: security.",
        ),
    )
    made: Decorated = with_broker
    for name, metavar, text in reversed(options):
        made = click.option(name, metavar=metavar, help=text)(made)
    return made


durable_option = click.option(
    "--durable", is_flag=True, help="Force each batch to disk: a loss of power takes nothing that was seen."
)


at_least_once_option = click.option(
    "--at-least-once", is_flag=True, help="Write to Kafka without transactions: rows may be there twice after a crash."
)


dead_letters_option = click.option(
    "--dead-letters", metavar="TOPIC", help="Write what queries drop to this topic in Kafka, too, as it came."
)


def functions_option(command: Decorated) -> Decorated:
    """`--functions FILE` as the argument `functions`."""

    @functools.wraps(command)
    def with_functions(*args: Any, functions: tuple[str, ...], **more: Any) -> Any:
        from braid.expr.loading import of_files

        return command(*args, functions=of_files(functions), **more)

    text = "Load Python functions that the SQL may call (docs/user-functions.md); may be given more than once."
    return click.option("--functions", multiple=True, metavar="FILE", help=text)(with_functions)


def file_option(command: Decorated) -> Decorated:
    """`--file FILE` as the argument `file`: text and dialect."""

    @functools.wraps(command)
    def with_file(*args: Any, file: str | None, **more: Any) -> Any:
        return command(*args, file=None if file is None else read_sql(file, None, None), **more)

    text = "Find the query's statement in FILE, where the store keeps none."
    return click.option("--file", type=click.Path(), help=text)(with_file)


def read_sql(
    file: str | None,
    text: str | None,
    dialect: str | None,
    named: Callable[[str], tuple[str, str] | None] | None = None,
) -> tuple[str, str]:
    """(text, dialect) of what the user gave. `named`: the same of a query of the store, by a name that is no file's."""
    from braid.sql.parser import dialect_of

    if (file is None) == (text is None):
        more = "" if named is None else ", or the NAME of a query of the store"
        raise BraidError(f"give a FILE or -e SQL{more}", "braid run demo.sql, or braid run -e 'SELECT …'")
    if text is None:
        assert file is not None
        if named is not None and not os.path.exists(file) and (found := named(file)) is not None:
            return found
        try:
            text = Path(file).read_text(encoding="utf-8")
        except OSError as e:
            raise BraidError(f"cannot read {file}: {e.strerror}") from None
        except UnicodeDecodeError:
            raise BraidError(f"{file} is not UTF-8 text") from None
    return text, dialect or dialect_of(text) or "ksqldb"


def named_in(store: Store, dialect: str | None, functions: Any) -> Callable[[str], tuple[str, str] | None]:
    """What finds the statement of a query that a store's catalogue has."""
    from braid.face.catalogue import statement_of

    return lambda name: statement_of(store, name, dialect, functions)


def folder_of(file: str | None) -> str:
    """Where scripts lie: beside the file, or in the present folder."""
    return os.path.dirname(file or "") or "."


def files_options(command: Decorated) -> Decorated:
    """`--source`, `--deleted`, `--sink`, `--overwrite`, `--adopt-table`, `--checkpoint`: what is not a topic of the
    store, or lies elsewhere."""
    overwrite = click.option("--overwrite", is_flag=True, help="Replace what another run has left in a --sink.")
    says = "Take the table of a --sink that has moved, or was put back as it was (docs/sinks.md)."
    adopt = click.option("--adopt-table", is_flag=True, help=says)
    return places_options(overwrite(adopt(command)))


def places_options(command: Decorated) -> Decorated:
    """The same without `--overwrite`."""
    command = click.option(
        "--sink",
        "sinks",
        multiple=True,
        metavar="NAME=PATH|console|none|KIND:…",
        help="Write a result to files (a folder: .csv, .parquet, .jsonl), here, or to a table: postgres:…, delta:…, "
        "iceberg:… (docs/sinks.md).",
    )(command)
    command = click.option(
        "--checkpoint", type=PLACE, help="Keep checkpoints in this folder. [default: STORE/checkpoints]"
    )(command)
    command = click.option(
        "--deleted",
        multiple=True,
        metavar="NAME=COLUMN",
        help="Take the rows of a --source as deleted where this column of its files says so (true, 1, d, delete).",
    )(command)
    return click.option(
        "--source",
        "sources",
        multiple=True,
        metavar="NAME=PATH|KIND:…",
        help="Read a declared source from files (glob), or poll a table that lies elsewhere: snapshot:…, "
        "postgres:…, delta:…, iceberg:… (docs/tables.md).",
    )(command)


EXAMPLES = {
    "--source": "flights=data/flights.csv",
    "--deleted": "customers=op",
    "--sink": "late=results/late.csv",
    "--conf": "spark.driver.memory=4g",
}


def pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    """What `NAME=VALUE` options give, by name."""
    made: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise BraidError(f"{option} {text}: it takes NAME=VALUE", f"{option} {EXAMPLES[option]}")
        if name in made:
            raise BraidError(f"{option} {name} is given twice", "give it once; a path may be a glob")
        made[name] = value
    return made
