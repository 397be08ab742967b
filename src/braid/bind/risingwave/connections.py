"""CREATE CONNECTION: settings under a name, which sources, tables and sinks refer to.

In: the statement, the catalog. Out: a `Connection`; the properties of a statement with those of its connection.
Rule: of each kind one list says which settings there are; another one is refused with the nearest. Those that change
nothing here are taken and reported. No secret stands in SQL (RW-61). What is used is not dropped. RW-72.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from braid.bind.bound import Bound, Connection, Dropped, Nothing, connection_key
from braid.bind.risingwave.scope import Context
from braid.bind.risingwave.sinks import OF_CATALOGS
from braid.errors import SqlError, without_secrets
from braid.guess import meant
from braid.sql import ast
from braid.types import Scalar

Refers = TypeVar("Refers", ast.CreateTable, ast.CreateView)


@dataclass(frozen=True, slots=True)
class Kind:
    """`needs` and `takes`: its settings; `passed`: those that mean something in the statement that refers to it."""

    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        return (*self.needs, *self.takes)


def _names(begin: str, *ends: str) -> tuple[str, ...]:
    return tuple(f"{begin}{end}" for end in ends)


KINDS: Mapping[str, Kind] = {
    "kafka": Kind(
        needs=("properties.bootstrap.server",),
        takes=(
            *_names("properties.", "security.protocol", "ssl.endpoint.identification.algorithm"),
            *_names("properties.ssl.", "ca.location", "ca.pem", "certificate.location", "certificate.pem"),
            *_names("properties.ssl.key.", "location", "pem", "password"),
            *_names("properties.sasl.", "mechanism", "username", "password", "oauthbearer.config"),
            *_names("properties.sasl.kerberos.", "service.name", "keytab", "principal", "kinit.cmd"),
            "properties.sasl.kerberos.min.time.before.relogin",
            *_names("aws.", "region", "endpoint_url", "profile", "msk.signer_timeout_sec"),
            *_names("aws.credentials.", "access_key_id", "secret_access_key", "session_token", "role.arn"),
            "aws.credentials.role.external_id",
        ),
    ),
    "iceberg": Kind(
        takes=(
            *OF_CATALOGS,
            *_names("catalog.", "name", "header", "security", "io_impl", "jdbc.user", "jdbc.password"),
            *_names("catalog.rest.", "signing_region", "signing_name", "sigv4_enabled"),
            *_names("s3.", "iam_role_arn", "path.style.access"),
            *_names("glue.", "access.key", "secret.key", "iam_role_arn", "region", "id"),
            *("gcs.credential", "gcp.auth.scopes", "enable_config_load", "hosted_catalog", "vended_credentials"),
            *_names("azblob.", "account_name", "account_key", "endpoint_url"),
            *_names("adlsgen2.", "account_name", "account_key", "endpoint"),
        ),
        passed=("catalog.name",),
    ),
    "schema_registry": Kind(
        needs=("schema.registry",),
        takes=("schema.registry.username", "schema.registry.password"),
        passed=("schema.registry",),
    ),
}
ALSO = {"kafka.brokers": "properties.bootstrap.server"}  # other names of settings
SECRETS = frozenset(
    {
        *_names("properties.", "ssl.key.pem", "ssl.key.password", "sasl.password", "sasl.oauthbearer.config"),
        *_names("aws.credentials.", "secret_access_key", "session_token"),
        *_names("catalog.", "credential", "token", "jdbc.password", "header"),
        *("s3.secret.key", "glue.secret.key", "gcs.credential", "azblob.account_key", "adlsgen2.account_key"),
        "schema.registry.password",
    }
)


def create(s: ast.CreateConnection, context: Context) -> Bound:
    name = context.new_name(s.name)
    if name in context.catalog.connections:
        if s.if_not_exists:
            return Nothing((f"connection {name} exists already: nothing to do",))
        hint = f"write IF NOT EXISTS, or DROP CONNECTION {name} first"
        raise SqlError(f"connection {name} exists already", s.name.span, hint)
    said: dict[str, ast.Property] = {}
    for p in s.properties:
        known = ALSO.get(p.name, p.name)
        if p.ref is not None:
            raise SqlError("a connection refers to no other one", p.span, "write its settings here")
        if known in said:
            raise SqlError(f"{p.name} is written twice", p.span, "keep one of them")
        said[known] = p
    kind_name = _kind(s, said)
    kind = KINDS[kind_name]
    for setting, p in said.items():
        if setting not in kind.settings:
            hint = meant(p.name, kind.settings, f"there are {', '.join(kind.settings)}")
            raise SqlError(f"a connection of type '{kind_name}' has no setting {p.name}", p.span, hint)
        _check_secret(setting, p, name)
    for need in kind.needs:
        if need not in said or _text(said[need]) == "":
            raise SqlError(f"a connection of type '{kind_name}' needs {need}", s.span, f"add {need} = '…'")
    settings = tuple((setting, _text(p)) for setting, p in said.items())
    return Connection(name, kind_name, settings, _notices(kind_name, dict(settings), name))


def _kind(s: ast.CreateConnection, said: dict[str, ast.Property]) -> str:
    """The type, which is no setting."""
    p = said.pop("type", None)
    known = ", ".join(f"'{k}'" for k in KINDS)
    if p is None:
        raise SqlError("a connection needs type", s.span, f"add type = …: there are {known}")
    name = _text(p).lower()
    if name not in KINDS:
        hint = meant(name, KINDS, f"there are {known}")
        raise SqlError(f"a connection of type '{name}' is not supported", p.value.span, hint)
    return name


def _text(p: ast.Property) -> str:
    value = p.value.value
    if value is None:
        raise SqlError(f"{p.name} is NULL", p.value.span, f"write {p.name} = 'value', or leave it out")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_secret(setting: str, p: ast.Property, name: str) -> None:
    """A reference to a secret, or none; no address has one in it."""
    text = _text(p)
    if setting not in SECRETS and without_secrets(text) != text:
        hint = f"write {p.name} without a user, a password and what comes behind '?'"
        raise SqlError("a password in SQL can be read by others", p.value.span, hint)
    if setting not in SECRETS or re.fullmatch(r"\$\w+|@[^#]+|", text):
        return
    where = _of_pyiceberg(setting, name)
    other = f"; or leave it out: pyiceberg reads {where}" if where else "; or leave it out"
    hint = f"write {p.name} = '$NAME', of the environment, or '@FILE'{other}"
    raise SqlError("a password in SQL can be read by others", p.value.span, hint)


def _of_pyiceberg(setting: str, catalog: str) -> str | None:
    return f"PYICEBERG_CATALOG__{catalog.upper()}__{OF_CATALOGS[setting]}" if setting in OF_CATALOGS else None


def _notices(kind: str, settings: Mapping[str, str], name: str) -> tuple[str, ...]:
    """What is reported of settings that change nothing here."""
    catalog = settings.get("catalog.name", name)
    wanted = [w for setting in settings if (w := _of_pyiceberg(setting, catalog)) is not None]
    idle = [s for s in settings if s not in KINDS[kind].passed and _of_pyiceberg(s, catalog) is None]
    told = [f"{setting} has no effect here" for setting in idle]
    if wanted:
        told.append(f"settings of a catalog are pyiceberg's: set {', '.join(wanted)}, or write ~/.pyiceberg.yaml")
    return tuple(told)


# -------------------------------------------------------------------------- use


def connected(s: Refers, context: Context) -> Refers:
    """The statement with the settings of the connections that it refers to."""
    connector = next((str(p.value.value).lower() for p in s.properties if p.name == "connector"), None)
    properties = _connected(s.properties, context, connector, "connector")
    encode = s.encode
    if encode is not None:
        encode = replace(encode, properties=_connected(encode.properties, context, "schema_registry", "ENCODE"))
    return replace(s, properties=properties, encode=encode)


def used(s: ast.CreateTable | ast.CreateView, context: Context) -> tuple[str, ...]:
    """The connections that a statement refers to."""
    of_encode = s.encode.properties if s.encode is not None else ()
    refers = [p for p in (*s.properties, *of_encode) if p.ref is not None]
    return tuple(dict.fromkeys(_found(p, context).name for p in refers))


def _connected(
    properties: tuple[ast.Property, ...], context: Context, wanted: str | None, what: str
) -> tuple[ast.Property, ...]:
    refs = [p for p in properties if p.ref is not None]
    if not refs:
        return properties
    p = refs[0]
    if len(refs) > 1:
        raise SqlError("connection is written twice", refs[1].span, "keep one of them")
    found = _found(p, context)
    if wanted != found.kind:
        named = "needs a connector" if wanted is None else f"is of type '{found.kind}'"
        hint = f"write connector = '{found.kind}'" if what == "connector" else "take one of type 'schema_registry'"
        if found.kind == "schema_registry" and what == "connector":
            hint = "write it behind ENCODE: ENCODE … (connection = …)"
        raise SqlError(f"connection {found.name} {named}", p.span, hint)
    own = {other.name: other for other in properties}
    settings = dict(found.settings)
    for setting in settings:
        if setting in own:
            hint = f"leave it out: connection {found.name} has it"
            raise SqlError(f"{setting} is written twice", own[setting].span, hint)
    if found.kind == "iceberg" and "catalog.name" not in own:
        settings.setdefault("catalog.name", found.name)
    passed = {name: value for name, value in settings.items() if name in KINDS[found.kind].passed}
    more = (ast.Property(n, ast.Literal(v, Scalar.VARCHAR, p.value.span), p.span) for n, v in passed.items())
    return (*(other for other in properties if other.ref is None), *more)


def _found(p: ast.Property, context: Context) -> Connection:
    assert p.ref is not None
    known = context.catalog.connections
    found = next((known[n] for n in context.names_of(p.ref) if n in known), None)
    if found is None:
        hint = meant(str(p.ref), known, f"there are {', '.join(known)}" if known else "CREATE CONNECTION it first")
        raise SqlError(f"there is no connection {p.ref}", p.ref.span, hint)
    return found


# ------------------------------------------------------------------------- DROP


def drop(s: ast.Drop, context: Context) -> Bound:
    known = context.catalog.connections
    going, notices = list[str](), list[str]()
    for n in s.names:
        names = context.names_of(n)
        name = next((x for x in names if x in known), names[0])
        if name not in known:
            if not s.if_exists:
                hint = meant(name, known, f"there are {', '.join(known)}" if known else "there are none")
                raise SqlError(f"there is no connection {n}", n.span, hint)
            notices.append(f"connection {n} does not exist: nothing to do")
            continue
        if using := users(name, context):
            hint = f"DROP {', '.join(using)} first; CASCADE is not supported yet for connections"
            raise SqlError(f"connection {name} is used by {', '.join(using)}", n.span, hint)
        going.append(connection_key(name))
    return Dropped(tuple(going), (), (), tuple(notices)) if going else Nothing(tuple(notices))


def users(name: str, context: Context) -> list[str]:
    declared = context.catalog.sources.values()
    return [d.name for d in declared if d.relation is not None and name in d.relation.connections]


def listed(connections: Iterable[Connection]) -> list[tuple[str, str, str]]:
    """For SHOW CONNECTIONS; a secret is a reference."""
    return sorted((c.name, c.kind, ", ".join(f"{n} = '{v}'" for n, v in c.settings)) for c in connections)
