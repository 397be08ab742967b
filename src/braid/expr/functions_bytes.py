"""Functions of bytes, of encodings and of URLs.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`.
Rule: ksqlDB's meaning. Null in, null out. An encoding that is not known is refused where it is a constant; bytes, texts
and URLs that cannot be read make the row fail.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from collections.abc import Sequence
from urllib.parse import quote_plus, unquote_to_bytes
from uuid import UUID

import polars as pl

from braid.expr.nodes import Expr
from braid.expr.rows import distinct
from braid.expr.signatures import Function, Refused, Resolver, Signature, constant, forms, in_sql, tried
from braid.types import Scalar

S = Scalar
_TEXT = S.VARCHAR


# ------------------------------------------------------------------ encodings

ENCODINGS = ("hex", "utf8", "ascii", "base64")
NO_ENCODING = "it is not in that encoding, or there is none of that name"
NO_URL = "it is not a URL"
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/]")


def _base64_of(text: str, *, whole: bool) -> bytes:
    """What is no letter of the alphabet is passed over; a rest of six bits is an error with `whole`, else left out."""
    letters = _NOT_BASE64.sub("", text.replace("-", "+").replace("_", "/").split("=")[0])
    if len(letters) % 4 == 1:
        if whole:
            raise ValueError("the last letter gives no byte")
        letters = letters[:-1]
    return base64.b64decode(letters + "=" * (-len(letters) % 4))


def _hex_of(text: str) -> bytes:
    if not re.fullmatch(r"(?:[0-9a-fA-F]{2})*", text):
        raise ValueError("hex has two digits a byte")
    return bytes.fromhex(text)


def _ascii_text(value: bytes) -> str:
    return value.decode("ascii", "replace")


def _to_bytes(text: str, encoding: str) -> bytes:
    match encoding.lower():
        case "hex":
            return _hex_of(text)
        case "utf8":
            return text.encode()
        case "ascii":
            return text.encode("ascii", "replace")
        case "base64":
            return _base64_of(text, whole=True)
    raise ValueError("no such encoding")


def _from_bytes(value: bytes, encoding: str) -> str:
    """Base64 in lines of 76."""
    match encoding.lower():
        case "hex":
            return value.hex().upper()
        case "utf8":
            return value.decode("utf-8", "replace")
        case "ascii":
            return _ascii_text(value)
        case "base64":
            text = base64.b64encode(value).decode()
            return "\r\n".join(text[i : i + 76] for i in range(0, len(text), 76))
    raise ValueError("no such encoding")


def _encode(text: str, source: str, target: str) -> str:
    """From one encoding into another one; hex may be written 0x… or X'…'."""
    source, target = source.lower(), target.lower()
    if source == target or target not in ENCODINGS:
        raise ValueError("two encodings")
    if source == "hex" and text.startswith("0x"):
        text = text[2:] if len(text) % 2 == 0 else f"0{text[2:]}"
    elif source == "hex" and re.fullmatch(r"[xX]'.*'", text, re.DOTALL):
        text = text[2:-1]
    value = _base64_of(text, whole=False) if source == "base64" else _to_bytes(text, source)
    match target:
        case "hex":
            return value.hex()
        case "base64":
            return base64.b64encode(value).decode()
    return _from_bytes(value, target)


def _resolve_encoded(first: Scalar, result: Scalar, count: int, usage: str) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        types = (first, *(_TEXT,) * count)
        if len(args) != len(types) or any(a.type not in (t, S.NULL) for a, t in zip(args, types, strict=True)):
            return Refused(f"it takes {usage}")
        named = [e.lower() for a in args[1:] if isinstance(e := constant(a), str)]
        if count == 1 and any(e not in ENCODINGS for e in named):  # ENCODE fails in its rows, as ksqlDB's does
            return Refused("no such encoding", f"the encodings are {', '.join(ENCODINGS)}")
        return Signature(types, result)

    return resolve


# -------------------------------------------------------------------- numbers


def _number_of(size: int, code: str, t: Scalar) -> Function:
    def read(value: bytes, order: str = "BIG_ENDIAN") -> int | float:
        sign = {"BIG_ENDIAN": ">", "LITTLE_ENDIAN": "<"}.get(order)
        if sign is None or len(value) != size:
            raise ValueError("bytes of another number")
        found: int | float = struct.unpack(sign + code, value)[0]
        return found

    name = {S.INT: "INT", S.BIGINT: "BIGINT", S.DOUBLE: "DOUBLE"}[t]
    usage = f"{size} BYTES, and maybe 'BIG_ENDIAN' or 'LITTLE_ENDIAN'"
    takes, why = forms(usage, ((S.BYTES,), t), ((S.BYTES, _TEXT), t)), "it has another number of bytes"
    return Function(f"{name}_FROM_BYTES", takes, tried(read, t, why))


def _resolve_uuid(args: Sequence[Expr]) -> Signature | Refused:
    if not args:
        return Refused("without an argument it is not deterministic: a batch that is run again would give other rows",
                       "use ROWPARTITION and ROWOFFSET, which name a record")  # fmt: skip
    return forms("16 BYTES", ((S.BYTES,), _TEXT))(args)


def _uuid(value: bytes) -> str | None:
    """Null for another length: no error, as there."""
    return str(UUID(bytes=value)) if len(value) == 16 else None


# ----------------------------------------------------------------------- URLs

# RFC 2396 as java.net.URI reads it: letters beyond ASCII are allowed, `%` only before two hex digits.
_CHAR = r"[A-Za-z0-9_\-!.~'()*,;:$&+=@]|%[0-9A-Fa-f]{2}|[^\x00-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
_AUTHORITY = rf"(?:{_CHAR}|[\[\]])*"
_URI = re.compile(
    rf"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):(?=.))?"
    rf"(?:(?P<opaque>(?<=:)(?:{_CHAR}|\?)(?:{_CHAR}|[/?\[\]])*)|"
    rf"(?://(?P<authority>{_AUTHORITY}))?(?P<path>(?:{_CHAR}|/)*)(?:\?(?P<query>(?:{_CHAR}|[/?\[\]])*))?)"
    rf"(?:\#(?P<fragment>(?:{_CHAR}|[/?\[\]])*))?",
    re.DOTALL,
)
_SERVER = re.compile(
    r"(?:[^@\[\]]*@)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[0-9]{1,3}(?:\.[0-9]{1,3}){3}|"
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9\-]*[A-Za-z0-9])?\.)*[A-Za-z](?:[A-Za-z0-9\-]*[A-Za-z0-9])?\.?)(?::(?P<port>[0-9]*))?"
)


def _uri(url: str) -> dict[str, str | None]:
    """The parts of a URL, as they stand."""
    found = _URI.fullmatch(url)
    if found is None or url.endswith("://") or (found["scheme"] is None and re.match(r"[^/?#]*:", url)):
        raise ValueError("not a URL")
    server = _SERVER.fullmatch(found["authority"] or "")
    if server is None and re.search(r"[\[\]]", found["authority"] or ""):
        raise ValueError("brackets hold an address of IPv6")
    if server is None or (server["port"] and int(server["port"]) >= 2**31):
        return {**found.groupdict(), "host": None, "port": None}
    return {**found.groupdict(), "host": server["host"], "port": server["port"] or None}


def _decoded(text: str | None) -> str | None:
    return None if text is None else unquote_to_bytes(text).decode("utf-8", "replace")


def _part(name: str, part: str, *, decoded: bool = True) -> Function:
    def read(url: str) -> str | None:
        value = _uri(url)[part]
        return _decoded(value) if decoded else value

    return Function(f"URL_EXTRACT_{name}", forms("a VARCHAR", ((_TEXT,), _TEXT)), tried(read, _TEXT, NO_URL))


def _port(url: str) -> int | None:
    port = _uri(url)["port"]
    return None if port is None else int(port)


def _parameter(url: str, name: str) -> str | None:
    """The first value of that name; empty where it has none."""
    query = _decoded(_uri(url)["query"])
    for pair in [] if query is None else query.split("&"):
        key, _, value = pair.partition("=")
        if key == name:
            return value
    return None


def _encoded_parameter(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def _decoded_parameter(text: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise ValueError("two hex digits must follow %")
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")


def _md5(data: str | bytes) -> str:
    return hashlib.md5(data.encode() if isinstance(data, str) else data, usedforsecurity=False).hexdigest()


_url = forms("a VARCHAR", ((_TEXT,), _TEXT))

BYTES_FUNCTIONS = {
    f.name: f
    for f in (
        Function(
            "ENCODE",
            _resolve_encoded(_TEXT, _TEXT, 2, "a VARCHAR, its encoding, and another one"),
            tried(_encode, _TEXT, NO_ENCODING),
        ),
        Function(
            "TO_BYTES",
            _resolve_encoded(_TEXT, S.BYTES, 1, "a VARCHAR and an encoding"),
            tried(_to_bytes, S.BYTES, NO_ENCODING),
        ),
        Function(
            "FROM_BYTES",
            _resolve_encoded(S.BYTES, _TEXT, 1, "BYTES and an encoding"),
            tried(_from_bytes, _TEXT, NO_ENCODING),
        ),
        _number_of(4, "i", S.INT),
        _number_of(8, "q", S.BIGINT),
        _number_of(8, "d", S.DOUBLE),
        Function(
            "MD5",
            forms("a VARCHAR, or BYTES", ((_TEXT,), _TEXT), ((S.BYTES,), _TEXT)),
            lambda call, args: distinct(_md5, args, pl.String()),
            names=in_sql(ksqldb="MD5"),
        ),
        Function("UUID", _resolve_uuid, tried(_uuid, _TEXT, "it is not the bytes of a UUID")),
        Function("URL_ENCODE_PARAM", _url, lambda call, args: distinct(_encoded_parameter, args, pl.String())),
        Function("URL_DECODE_PARAM", _url, tried(_decoded_parameter, _TEXT, "two hex digits must follow %")),
        _part("PROTOCOL", "scheme", decoded=False),
        _part("HOST", "host", decoded=False),
        _part("PATH", "path"),
        _part("QUERY", "query"),
        _part("FRAGMENT", "fragment"),
        Function("URL_EXTRACT_PORT", forms("a VARCHAR", ((_TEXT,), S.INT)), tried(_port, S.INT, NO_URL)),
        Function(
            "URL_EXTRACT_PARAMETER",
            forms("a VARCHAR, and the name of a parameter", ((_TEXT, _TEXT), _TEXT)),
            tried(_parameter, _TEXT, NO_URL),
        ),
    )
}
