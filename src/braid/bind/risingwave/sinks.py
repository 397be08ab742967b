"""CREATE SINK: where rows go that a table elsewhere takes, and by which columns it keeps them.

In: the statement, the rows that it gives. Out: a `Wish`: the table, and what it holds.
Rule: of each connector's parameters one list says which are taken, which change nothing (told), and which stand
elsewhere (refused). What is not in it is refused. No secret stands in SQL. Rows that change are kept by columns that
tell them apart at every moment; which do, follows from the plan (`plan/follows.py`). RW-58 to RW-61.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from braid.bind.bound import Declared
from braid.bind.risingwave.scope import Context
from braid.bind.select.items import Item, Result
from braid.errors import Span, SqlError
from braid.expr.nodes import Col, Expr, columns
from braid.guess import meant
from braid.plan.follows import Follows, Rules, follows
from braid.plan.logical import Elsewhere, Node, Source, sources
from braid.sql import ast

COMMON = ("connector", "type", "primary_key", "force_append_only", "snapshot")
TYPES = ("append-only", "upsert")
SSL = {"disabled": "disable", "preferred": "prefer", "required": "require", "verify-ca": "verify-ca",
       "verify-full": "verify-full"}  # fmt: skip
# What pyiceberg's configuration calls settings of a catalog, behind PYICEBERG_CATALOG__NAME__.
OF_CATALOGS = {
    "catalog.type": "TYPE",
    "catalog.uri": "URI",
    "catalog.url": "URI",
    "catalog.credential": "CREDENTIAL",
    "catalog.token": "TOKEN",
    "catalog.scope": "SCOPE",
    "catalog.oauth2_server_uri": "OAUTH2_SERVER_URI",
    "warehouse.path": "WAREHOUSE",
    "s3.endpoint": "S3__ENDPOINT",
    "s3.region": "S3__REGION",
    "s3.access.key": "S3__ACCESS_KEY_ID",
    "s3.secret.key": "S3__SECRET_ACCESS_KEY",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """`into`: a table elsewhere; None: the topic. `keys`: what rows are kept by, or spread by if only
    added (`added`); `forced`: one that changes is added anew, and none is taken back."""

    keys: tuple[Expr, ...]
    into: Elsewhere | None = None
    added: bool = False
    forced: bool = False
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """The parameters of one statement, by name; `at`: where a missing one would stand."""

    said: Mapping[str, ast.Property]
    at: Span
    sink: str

    def text(self, name: str) -> str | None:
        p = self.said.get(name)
        if p is None or p.value.value == "":
            return None
        if p.value.value is None:
            raise SqlError(f"{name} is NULL", p.value.span, f"write {name} = 'value', or leave it out")
        return str(p.value.value).lower() if isinstance(p.value.value, bool) else str(p.value.value)

    def span(self, name: str) -> Span:
        return self.said[name].value.span if name in self.said else self.at

    def flag(self, name: str) -> bool | None:
        text = self.text(name)
        if text is None or text.lower() in ("true", "false"):
            return None if text is None else text.lower() == "true"
        raise SqlError(f"{name} cannot be {text}", self.span(name), f"write {name} = 'true', or leave it out")

    def part(self, name: str, but: str = "#") -> str | None:
        """A value that becomes a part of a name, which what is in `but` would divide."""
        text = self.text(name)
        if text is not None and any(c in but or not c.isprintable() for c in text):
            hint = f"{name} takes no {' and no '.join([*but, 'control characters'])}"
            raise SqlError(f"{name} cannot be {text}", self.span(name), hint)
        return text


@dataclass(frozen=True, slots=True)
class Connector:
    """`table`: which one is meant; `needs` are among the parameters that it takes. `idle`: those that change
    nothing here. `elsewhere`: says of others, by what they begin with, what to do instead. `upserts`: it takes rows
    that change; `keyed`: it keeps them by a key, and `type` must say how."""

    table: Callable[[Given], Elsewhere]
    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    elsewhere: Mapping[str, Callable[[Given, str], str]] = field(default_factory=dict)
    upserts: bool = True
    keyed: bool = True


def wish(s: ast.CreateView, rows: Result, context: Context) -> Wish:
    """What a view or a sink wants to be written into."""
    said = {p.name: p for p in s.properties}
    p = said.get("connector")
    if s.what != "sink" or p is None or p.value.value == "kafka":
        return Wish(rows.node.row_key)
    connector = CONNECTORS.get(str(p.value.value).lower())
    if connector is None:
        known = ", ".join(f"'{name}'" for name in (*CONNECTORS, "kafka"))
        raise SqlError(f"connector '{p.value.value}' is not supported yet", p.value.span, f"there are {known}")
    if s.encode is not None:
        raise SqlError("FORMAT … ENCODE is of connector 'kafka'", s.encode.span, "leave it out: write type = 'upsert'")
    given = Given(said, s.name_span, s.name)
    notices = _checked(s.properties, connector, given)
    into = connector.table(given)
    changes = rows.node.mode != "append"
    added, forced = _type(given, connector, changes)
    keys = rows.node.row_key if added else _keys(given, rows, context, connector.keyed)
    return Wish(keys, into, added, forced, notices)


def _checked(properties: Iterable[ast.Property], connector: Connector, given: Given) -> tuple[str, ...]:
    """Each parameter is known and written once, and none is missing. What is told of those that change nothing."""
    known = (*COMMON, *connector.needs, *connector.takes, *connector.idle)
    name = str(given.said["connector"].value.value)
    seen = set[str]()
    for p in properties:
        if p.name in seen:
            raise SqlError(f"{p.name} is written twice", p.span, "keep one of them")
        seen.add(p.name)
        instead = next((say for begin, say in connector.elsewhere.items() if p.name.startswith(begin)), None)
        if p.name not in known and instead is not None:
            raise SqlError(f"{p.name} is not taken here", p.span, instead(given, p.name))
        if p.name not in known:
            hint = meant(p.name, known, f"there are {', '.join(known)}")
            raise SqlError(f"connector '{name}' has no parameter {p.name}", p.span, hint)
    for need in connector.needs:
        if given.text(need) is None:
            raise SqlError(f"connector '{name}' needs {need}", given.span(need), f"add {need} = '…'")
    if given.flag("snapshot") is False:
        hint = "leave it out: all rows are written"
        raise SqlError("snapshot = 'false' is not supported yet", given.span("snapshot"), hint)
    return tuple(f"{p.name} has no effect here" for p in properties if p.name in connector.idle)


def _type(given: Given, connector: Connector, changes: bool) -> tuple[bool, bool]:
    """Whether rows are only added, and whether those that change are, too."""
    type_, forced = given.text("type"), given.flag("force_append_only") is True
    if type_ is None and not forced and not connector.keyed:
        return not changes, False
    if type_ not in TYPES:
        what = "a sink needs type" if type_ is None else f"type cannot be {type_}"
        raise SqlError(what, given.span("type"), "write type = 'upsert', or type = 'append-only'")
    if type_ == "upsert":
        if forced:
            hint = "write type = 'append-only', or leave it out"
            raise SqlError("force_append_only needs type = 'append-only'", given.span("force_append_only"), hint)
        if not connector.upserts:
            hint = "write connector = 'deltalake' or 'postgres'; or type = 'append-only'"
            raise SqlError("type = 'upsert' is not supported yet by connector 'iceberg'", given.span("type"), hint)
        return False, False
    if changes and not forced:
        hint = ("write type = 'upsert'" if connector.upserts else "write connector = 'deltalake' or 'postgres'") + (
            "; or force_append_only = 'true': a row that changes is added again, one that goes stays"
        )
        raise SqlError(f"the rows of {given.sink} change, and cannot only be added", given.span("type"), hint)
    if (p := given.said.get("primary_key")) is not None:
        raise SqlError("rows that are only added have no primary_key", p.span, "leave it out, or write type = 'upsert'")
    return True, changes


# -------------------------------------------------------------------------- keys


def _keys(given: Given, rows: Result, context: Context, needed: bool) -> tuple[Expr, ...]:
    """The columns that rows are kept by: `primary_key`, else the first that tell them apart; where none do and none are
    `needed`, the rows' own key."""
    wanted = [name for e in rows.node.row_key for name in columns(e)]
    rules, by_name = rules_of(rows.node, context), {i.col.name: i for i in rows.items}
    asked = _asked(given, rows)
    names = [i.col.name for i in asked] or rules.least(by_name, wanted)
    if names and rules.suffices(names, wanted):
        in_order = [e for e in rows.node.row_key if isinstance(e, Col)]
        return tuple(in_order) if {c.name for c in in_order} == {*names} else tuple(by_name[n].col for n in names)
    if not needed and not asked:
        return rows.node.row_key
    more = rules.least([*(i.col.name for i in asked), *by_name], wanted)
    if more:
        hint = f"write primary_key = '{', '.join(by_name[n].name for n in more)}'"
    else:
        enough = rules.least([*by_name, *_shown(rows.node, context), *wanted], wanted) or ()
        lacks = ", ".join(context.written(name) for name in enough if name not in by_name)
        hint = f"select their key, too: {lacks}; rows of a table have one by PRIMARY KEY, others by GROUP BY"
    if asked:
        what = f"two rows of {given.sink} may have the same {', '.join(i.name for i in asked)}"
        raise SqlError(what, given.span("primary_key"), hint)
    raise SqlError(f"rows of {given.sink} are not distinguished by what is selected", given.span("type"), hint)


def _shown(node: Node, context: Context) -> Iterator[str]:
    """The columns of the sources that a statement can select."""
    for source in sources(node):
        found = context.found(source.name)
        hidden = {c.name for c in found.columns if c.hidden} if isinstance(found, Declared) else ()
        yield from (c.name for c in source.columns if c.field not in hidden)


def _asked(given: Given, rows: Result) -> list[Item]:
    text, known = given.text("primary_key") or "", {i.name: i for i in rows.items}
    names = [name for name in map(str.strip, text.split(",")) if name]
    for name in names:
        if name not in known:
            hint = meant(name, known, f"columns are {', '.join(known)}")
            raise SqlError(f"primary_key: there is no column {name}", given.span("primary_key"), hint)
    return [known[name] for name in dict.fromkeys(names)]


def rules_of(node: Node, context: Context) -> Rules:
    """What follows from what among the columns of a plan over this catalog."""

    def known(source: Source) -> Iterable[Follows]:
        found, names = context.found(source.name), {c.field: c.name for c in source.columns}
        if isinstance(found, Declared) and found.relation is not None:
            for rule in found.relation.follows:
                by, gives = (frozenset(names[n] for n in part) for part in (rule.by, rule.gives))
                yield replace(rule, by=by, gives=gives)

    return Rules(follows(node, known))


# -------------------------------------------------------------------- connectors


def _postgres(given: Given) -> Elsewhere:
    words = {name: given.part(name) for name in ("host", "port", "user")}
    words |= {"password": _password(given.text("password"), given, "password"), "dbname": given.part("database")}
    if (mode := given.text("ssl_mode")) is not None:
        if mode not in SSL:
            raise SqlError(f"ssl_mode cannot be {mode}", given.span("ssl_mode"), f"there are {', '.join(SSL)}")
        words["sslmode"] = SSL[mode]
    words["sslrootcert"] = given.part("ssl.root.cert")
    return Elsewhere("postgres", _place(given, "schema", "table"), _conninfo(words))


def _jdbc(given: Given) -> Elsewhere:
    place, url = _place(given, "schema.name", "table.name"), given.text("jdbc.url") or ""
    if url[:1] in "$@" and "#" not in url:
        for name in ("user", "password"):
            if name in given.said:
                hint = "leave it out: what jdbc.url refers to is all of the connection"
                raise SqlError(f"jdbc.url = '{url}' and {name}", given.span(name), hint)
        return Elsewhere("postgres", place, url)
    hint = "write jdbc.url = 'jdbc:postgresql://HOST:PORT/DATABASE', '$NAME' or '@FILE'"
    try:
        parts = urlsplit(url.removeprefix("jdbc:"))
        port, asked = parts.port, parse_qsl(parts.query, strict_parsing=bool(parts.query))
        host, user, secret = (x and unquote(x) for x in (parts.hostname, parts.username, parts.password))
    except ValueError:
        raise SqlError("jdbc.url cannot be read", given.span("jdbc.url"), hint) from None
    if not url.startswith("jdbc:postgresql://") or not host or "#" in url or not url.isprintable():
        raise SqlError("jdbc.url names no database of PostgreSQL", given.span("jdbc.url"), hint)
    words = {"host": host, "port": str(port or ""), "user": user, "password": secret}
    words["dbname"] = unquote(parts.path.removeprefix("/"))
    for name, value in asked:
        if name not in ("user", "password", "sslmode", "sslrootcert"):
            hint = "leave it out: user, password, sslmode and sslrootcert are taken"
            raise SqlError(f"jdbc.url: {name} is not taken here", given.span("jdbc.url"), hint)
        words[name] = value
    words["user"] = given.part("user") or words["user"]
    in_url = _password(words["password"], given, "jdbc.url")
    words["password"] = _password(given.text("password"), given, "password") or in_url
    if any("#" in (text or "") for text in words.values()):
        raise SqlError("jdbc.url names what has a '#'", given.span("jdbc.url"), hint)
    return Elsewhere("postgres", place, _conninfo(words))


def _password(text: str | None, given: Given, name: str) -> str | None:
    """A reference to a password."""
    if not text or re.fullmatch(r"\$\w+|@[^#]+", text):
        return text or None
    hint = "write password = '$NAME', of the environment, or '@FILE'; or leave it out: PGPASSWORD, ~/.pgpass"
    raise SqlError("a password in SQL can be read by others", given.span(name), hint)


def _conninfo(words: Mapping[str, str | None]) -> str:
    """A connection in the words of libpq."""
    quoted = {name: text.replace("\\", "\\\\").replace("'", "\\'") for name, text in words.items() if text}
    return " ".join(f"{n}='{x}'" if x != words[n] or " " in x else f"{n}={x}" for n, x in quoted.items())


def _place(given: Given, schema: str, table: str) -> str:
    """A table, in the schema `public` where none is named."""
    return f"{given.part(schema, '.#') or 'public'}.{given.part(table, '.#')}"


def _deltalake(given: Given) -> Elsewhere:
    location = given.part("location", "") or ""
    path = location.removeprefix("file://")
    if "://" in path or (path != location and not path.startswith("/")):
        hint = "write 'file:///path/of/the/table', or a path"
        raise SqlError(f"location cannot be {location}", given.span("location"), hint)
    return Elsewhere("delta", path)


def _iceberg(given: Given) -> Elsewhere:
    for name in ("create_table_if_not_exists", "is_exactly_once"):
        if given.flag(name) is False:
            hint = "leave it out: the table is made where there is none, and each row is there once"
            raise SqlError(f"{name} = 'false' is not supported yet", given.span(name), hint)
    names = (given.part("catalog.name", ".#"), given.part("database.name"), given.part("table.name", ".#"))
    return Elsewhere("iceberg", ".".join(map(str, names)))


def _of_catalog(given: Given, name: str) -> str:
    catalog = (given.text("catalog.name") or "NAME").upper()
    where = f"PYICEBERG_CATALOG__{catalog}__{OF_CATALOGS[name]}" if name in OF_CATALOGS else "~/.pyiceberg.yaml"
    return f"leave it out: settings of a catalog are pyiceberg's, {where}"


def _of_store(given: Given, name: str) -> str:
    return "a table in an object store is not there yet: write location = 'file:///…'"


def _partitions(given: Given, name: str) -> str:
    return "leave it out, or make the table before, partitioned as you like"


CONNECTORS: Mapping[str, Connector] = {
    "postgres": Connector(
        _postgres,
        needs=("table",),
        takes=("host", "port", "user", "password", "database", "schema", "ssl_mode", "ssl.root.cert"),
        idle=("max_batch_rows",),
    ),
    "jdbc": Connector(
        _jdbc,
        needs=("jdbc.url", "table.name"),
        takes=("user", "password", "schema.name"),
        idle=("jdbc.query.timeout", "jdbc.auto.commit", "batch.insert.rows"),
    ),
    "deltalake": Connector(
        _deltalake,
        needs=("location",),
        idle=("commit_checkpoint_interval",),
        elsewhere={"s3.": _of_store, "gcs.": _of_store, "azblob.": _of_store, "aws.": _of_store},
    ),
    "iceberg": Connector(
        _iceberg,
        needs=("catalog.name", "database.name", "table.name"),
        takes=("create_table_if_not_exists", "is_exactly_once"),
        idle=("commit_checkpoint_interval", "commit_retry_num"),
        elsewhere={
            **dict.fromkeys(("catalog.", "warehouse.path", "s3.", "gcs.", "azblob.", "adlsgen2."), _of_catalog),
            "partition_by": _partitions,
        },
        upserts=False,
    ),
    "blackhole": Connector(lambda given: Elsewhere("none", ""), needs=(), keyed=False),
}
