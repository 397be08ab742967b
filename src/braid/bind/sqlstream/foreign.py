"""FOREIGN STREAM, FOREIGN TABLE and SERVER: streams that others write, or read, and tables that others fill.

In: a statement as written. Out: the options that mean something here; what is declared, and what is told.
Rule: S-148: a foreign stream or table is a topic (TOPIC), or files that a run binds to it; where the brokers and the
files are, the command line says, so the options for that are taken with a note. An option that is on no list is
refused.
"""

from __future__ import annotations

from dataclasses import replace

from braid.bind.bound import Declared, Nothing
from braid.bind.properties import options_of
from braid.errors import SqlError
from braid.guess import meant
from braid.records.encoding import Encoding
from braid.records.formats.named import CSV
from braid.sql import ast

TYPES = ("FILE", "KAFKA", "KAFKA10")
_MEANT = ("TOPIC", "PARTITIONS", "ROWTIME", "PARSER", "FORMATTER", "SEPARATOR", "STARTING_TIME")
_OF_BROKERS = ("SEED_BROKERS", "BROKERS", "PORT", "BOOTSTRAP_SERVERS")
_OF_FILES = (
    "DIRECTORY",
    "FILENAME_PATTERN",
    "FILENAME_PREFIX",
    "FILENAME_SUFFIX",
    "FILENAME_DATE_FORMAT",
    "STATIC_FILES",
    "REPEAT",
    "SKIP_HEADER",
    "WRITE_HEADER",
    "FILE_ROTATION_TIME",
    "FILE_ROTATION_SIZE",
    "FILE_ROTATION_ROWCOUNT",
    "ORIGINAL_FILENAME",
)
_OF_LINES = ("CHARACTER_ENCODING", "ROW_SEPARATOR", "QUOTE_CHARACTER", "ROW_PATH", "CLIENT_ID", "CONSUMER_GROUP_ID",
             "BUFFER_SIZE", "FETCH_SIZE", "MAX_POLL_RECORDS", "CLASSNAME")  # fmt: skip
# Options that mean something in another value than this one.
_ONLY = {"FORMATTER_INCLUDE_ROWTIME": "false", "FILE_ROTATION_RESPECT_ROWTIME": "false", "STARTING_OFFSET": "-1"}
_ELSEWHERE = ("SCHEMA_NAME", "TABLE_NAME", "CATALOG_NAME", "URL", "DRIVER_CLASS", "DIALECT", "QUERY")  # of a database
_OF_STREAMS = ("ROWTIME", "STARTING_TIME")
_KNOWN = (*_MEANT, *_OF_BROKERS, *_OF_FILES, *_OF_LINES, *_ONLY)
_OPTIONS = (*_KNOWN, *_ELSEWHERE)
_FORMATS = {"JSON": "JSON", "CSV": CSV}


def bind_server(s: ast.CreateServer) -> Nothing:
    """A server holds nothing: each stream says what it is."""
    if s.type is not None and str(s.type.value).upper() not in TYPES:
        hint = f"types are {', '.join(TYPES)}; other systems write into topics"
        raise SqlError(f"a server of type {s.type.value} is not supported yet", s.type.span, hint)
    given = _given(s.options, " of a server")
    if (own := next((o for n, o in given.items() if n in _MEANT), None)) is not None:
        hint = f"write it for each stream: CREATE FOREIGN STREAM … SERVER {s.name} OPTIONS ({own.name} '…')"
        raise SqlError(f"option {own.name} of a server is not supported yet", own.span, hint)
    return Nothing((f"server {s.name} needs no making: --kafka names brokers, --source files",))


def options(s: ast.CreateRelation) -> dict[str, ast.Property]:
    """The options of a foreign stream or table."""
    kind = s.kind.lower()
    given = _given(tuple(o for o in s.options if not _is_place(o, s)), f" of a foreign {kind}")
    if (own := next((given[n] for n in _OF_STREAMS if n in given), None)) is not None and kind == "table":
        hint = "leave it out: a table is read whole when a query starts, and its rows have no times"
        raise SqlError(f"{own.name} is of streams", own.span, hint)
    if (own := next((given[n] for n in _ELSEWHERE if n in given), None)) is not None:
        hint = "write its rows into files: OPTIONS (DIRECTORY '…', FILENAME_PATTERN '…', PARSER 'CSV'), and --source"
        raise SqlError(f"a {kind} of another database ({own.name}) is not supported yet", own.span, hint)
    if "TOPIC" not in given and not any(n in given for n in _OF_FILES):
        hint = "write OPTIONS (TOPIC 'name', PARSER 'JSON'), or (DIRECTORY '…', FILENAME_PATTERN '…', PARSER 'CSV')"
        raise SqlError(f"the foreign {kind} {s.name} says neither topic nor files", s.name.span, hint)
    return given


def _is_place(o: ast.Property, s: ast.CreateRelation) -> bool:
    """`x_PATH '$.x'`: where a column lies in a record, under its own name; or a setting of a broker's client."""
    name = next((c.name for c in s.columns if o.name == f"{c.name.upper()}_PATH"), None)
    if name is not None and o.value.value != f"$.{name}":
        hint = f"name the column as the field that it is, in double quotes, or leave {o.name} out"
        raise SqlError(f"{name} under another name in records is not supported yet", o.span, hint)
    return name is not None or "." in o.name


def of_outside(
    made: Declared, given: dict[str, ast.Property], written: tuple[ast.Property, ...]
) -> tuple[Declared, tuple[str, ...]]:
    """A foreign stream or table as it is declared here, with what is told of options."""
    format = _format(given, made.kind)
    separator = str(given["SEPARATOR"].value.value) if "SEPARATOR" in given else ","
    encoding = Encoding(made.encoding.key, format, separator)
    begin = given.get("STARTING_TIME")
    if begin is not None:
        where = str(begin.value.value).lower()
        if where not in ("earliest", "latest"):
            hint = "write 'earliest' or 'latest'; braid run --from takes a time"
            raise SqlError(f"STARTING_TIME cannot be '{where}'", begin.span, hint)
        made = replace(made, begin="latest" if where == "latest" else "earliest")
    clients = [o.name.lower() for o in written if "." in o.name]
    notes = [f"{made.name}: {', '.join(clients)}: settings of clients are those of --kafka-config"] if clients else []
    if any(n in given for n in _OF_BROKERS):
        notes.append(f"{made.name}: brokers are those of --kafka, not of OPTIONS")
    if any(n in given for n in _OF_FILES):
        name = made.name.rpartition(".")[2]
        notes.append(f"{made.name}: bind its files with --source {name}='directory/*.csv', not with OPTIONS")
    return replace(made, encoding=encoding), tuple(notes)


def _format(given: dict[str, ast.Property], kind: str) -> str:
    written = {str(given[n].value.value).upper() for n in ("PARSER", "FORMATTER") if n in given}
    which = given.get("PARSER", given.get("FORMATTER"))
    if which is None:
        return "JSON"
    unknown = next((w for w in written if w not in _FORMATS), None)
    if unknown is not None or len(written) > 1:
        hint = f"formats are {', '.join(_FORMATS)}, one for a {kind}"
        raise SqlError(f"a {kind} in {' and '.join(sorted(written))} is not supported yet", which.span, hint)
    separator = given.get("SEPARATOR")
    if separator is not None and (written != {"CSV"} or len(str(separator.value.value)) != 1):
        raise SqlError("SEPARATOR is one character, of CSV", separator.span, "write SEPARATOR ','")
    return _FORMATS[written.pop()]


def _given(written: tuple[ast.Property, ...], of: str) -> dict[str, ast.Property]:
    hint = f"options are {', '.join(_MEANT)}; of clients: braid run --kafka-config FILE"
    given = options_of(written, _OPTIONS, lambda name: meant(name, _KNOWN, hint), of)
    for name, only in _ONLY.items():
        if name in given and str(given[name].value.value).lower() != only:
            hint = f"leave it out, or write '{only}'"
            raise SqlError(f"{name} but '{only}' is not supported yet", given[name].span, hint)
    return given
