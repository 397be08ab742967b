"""PostgreSQL's functions of BYTEA: its written forms, encodings, bits and bytes, hashes.

In: typed calls and the Polars expressions of their arguments. Out: rows, by their plan names; BYTEA from and to text.
Rule: PostgreSQL's, down to what it passes over in hex and base64 and how it breaks lines. SHA1 is RisingWave's
("Binary string functions and operators"), and so is that the only encoding of text is UTF8 ("String functions").
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from braid.expr.nodes import Call, Expr
from braid.expr.postgres.base import named, plain, takes
from braid.expr.postgres.text import TOO_LONG
from braid.expr.rows import LARGEST, distinct
from braid.expr.signatures import Function, Refused, Signature, constant
from braid.types import Scalar

S = Scalar
_TEXT = S.VARCHAR
_SPACES = " \n\t\r"


def _held(text: str) -> str:
    if len(text) > LARGEST:
        raise ValueError(TOO_LONG)
    return text


# -------------------------------------------------------------- written forms


def bytea_of_text(value: str) -> bytes:
    """BYTEA as it is written: `\\x` and hex digits, or texts with `\\\\` and `\\ooo`."""
    return _hex_of(value[2:]) if value.startswith("\\x") else _escape_of(value)


def text_of_bytea(value: bytes) -> str:
    return f"\\x{value.hex()}"


def _hex_of(text: str) -> bytes:
    """Two digits a byte; between them may be blanks."""
    found = re.fullmatch(rf"(?:[0-9a-fA-F]{{2}}|[{_SPACES}])*", text)
    if found is None:
        return _bad_hex(text)
    return bytes.fromhex(text.translate(dict.fromkeys(map(ord, _SPACES))))


def _bad_hex(text: str) -> bytes:
    at = 0
    while at < len(text):
        if text[at] not in _SPACES:
            for c in text[at : at + 2]:
                if c not in "0123456789abcdefABCDEF":
                    raise ValueError(f'invalid hexadecimal digit: "{c}"')
            at += 1
        at += 1
    raise ValueError("invalid hexadecimal data: odd number of digits")


def _escape_of(text: str) -> bytes:
    if not re.fullmatch(r"(?:[^\\]|\\\\|\\[0-3][0-7]{2})*", text):
        raise ValueError("invalid input syntax for type bytea")
    octal = re.compile(rb"\\(?:\\|([0-3][0-7]{2}))")
    return octal.sub(lambda m: b"\\" if m[1] is None else bytes([int(m[1], 8)]), text.encode())


def _escaped(value: bytes) -> str:
    """Zeros and what is not ASCII in octal digits."""
    text = value.replace(b"\\", b"\\\\").decode("latin-1")
    return re.sub("[\0\x80-\xff]", lambda m: f"\\{ord(m[0]):03o}", text)


# --------------------------------------------------------------------- base64

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def _base64(value: bytes) -> str:
    """In lines of 76; a newline stands behind each full line."""
    text = base64.b64encode(value).decode()
    lines = [text[i : i + 76] for i in range(0, len(text), 76)]
    if len(value) % 3 == 0 and lines and len(lines[-1]) == 76:
        lines.append("")
    return "\n".join(lines)


def _base64_of(text: str) -> bytes:
    letters = text.translate(dict.fromkeys(map(ord, _SPACES)))
    if re.fullmatch(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", letters):
        return base64.b64decode(letters)
    out: list[int] = []
    bits = count = end = 0
    for c in letters:  # what PostgreSQL makes of what goes on behind an end
        if c == "=":
            if not end and count not in (2, 3):
                raise ValueError('unexpected "=" while decoding base64 sequence')
            end = end or count - 1
        elif c not in _ALPHABET:
            raise ValueError(f'invalid symbol "{c}" found while decoding base64 sequence')
        bits = bits << 6 | (0 if c == "=" else _ALPHABET.index(c))
        count += 1
        if count == 4:
            three = bits.to_bytes(3, "big")
            out += three[: 3 if end == 0 else end]
            bits = count = 0
    if count:
        raise ValueError("invalid base64 end sequence")
    return bytes(out)


# ------------------------------------------------------------------ encodings

_FORMS: dict[str, tuple[Callable[[bytes], str], Callable[[str], bytes]]] = {
    "hex": (bytes.hex, _hex_of), "base64": (_base64, _base64_of), "escape": (_escaped, _escape_of),
}  # fmt: skip


def _form(name: str) -> tuple[Callable[[bytes], str], Callable[[str], bytes]]:
    if name.lower() not in _FORMS:
        raise ValueError(f'unrecognized encoding: "{name}"')
    return _FORMS[name.lower()]


def _encode(value: bytes, form: str) -> str:
    return _held(_form(form)[0](value))


def _decode(text: str, form: str) -> bytes:
    return _form(form)[1](text)


def _checked(encoding: str) -> None:
    if re.sub("[^a-z0-9]", "", encoding.lower()) not in ("utf8", "unicode"):
        raise ValueError("only the encoding UTF8 is possible")


def _convert_from(value: bytes, encoding: str) -> str:
    """No text has a zero."""
    _checked(encoding)
    zero = value.find(b"\0")
    try:
        text = value.decode()
    except UnicodeDecodeError as e:
        raise ValueError(_bad_bytes(value, e.start if zero < 0 else min(e.start, zero))) from None
    if zero >= 0:
        raise ValueError(_bad_bytes(value, zero))
    return text


def _bad_bytes(value: bytes, at: int) -> str:
    """Says which bytes are no character: as many as the first of them announces."""
    size = next((n for n, least in ((1, 0xF8), (4, 0xF0), (3, 0xE0), (2, 0xC0)) if value[at] >= least), 1)
    shown = " ".join(f"0x{b:02x}" for b in value[at : at + size])
    return f'invalid byte sequence for encoding "UTF8": {shown}'


def _convert_to(text: str, encoding: str) -> bytes:
    _checked(encoding)
    return text.encode()


def _with_constant(function: Function, check: Callable[[str], object]) -> Function:
    """The row, which refuses a constant that is no name of a form."""
    inner = function.resolve

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        name = constant(args[1]) if len(args) == 2 else None
        try:
            if isinstance(name, str):
                check(name)
        except ValueError as e:
            return Refused(str(e))
        return inner(args)

    return replace(function, resolve=resolve)


# -------------------------------------------------------------------- numbers


def _to_hex(value: int, bits: int) -> str:
    return f"{value % (1 << bits):x}"


def _hex_row() -> Function:
    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        bits = 64 if call.args[0].type is S.BIGINT else 32
        return distinct(lambda value: _to_hex(value, bits), args, pl.String())

    options = [((t,), _TEXT) for t in (S.INT, S.BIGINT)]
    return Function("pg.to_hex", takes("an INTEGER or a BIGINT", *options), build, names=named("TO_HEX"))


# ------------------------------------------------------------- bits and bytes


def _inside(value: bytes, at: int, unit: int) -> None:
    if not 0 <= at < len(value) * unit:
        raise ValueError(f"index {at} out of valid range, 0..{len(value) * unit - 1}")


def _get_byte(value: bytes, at: int) -> int:
    _inside(value, at, 1)
    return value[at]


def _set_byte(value: bytes, at: int, new: int) -> bytes:
    _inside(value, at, 1)
    return value[:at] + bytes([new & 255]) + value[at + 1 :]


def _get_bit(value: bytes, at: int) -> int:
    """Bit 0 is the lowest of the first byte."""
    _inside(value, at, 8)
    return value[at // 8] >> at % 8 & 1


def _set_bit(value: bytes, at: int, new: int) -> bytes:
    _inside(value, at, 8)
    if new not in (0, 1):
        raise ValueError("new bit must be 0 or 1")
    return _set_byte(value, at // 8, value[at // 8] & ~(1 << at % 8) | new << at % 8)


def _bit_count(value: bytes) -> int:
    return int.from_bytes(value, "big").bit_count()


# --------------------------------------------------------------------- hashes


def _hash(name: str) -> Function:
    return plain(name, "a BYTEA", [((S.BYTES,), S.BYTES)], lambda value: hashlib.new(name.lower(), value).digest())


def _md5(value: str | bytes) -> str:
    return hashlib.md5(value.encode() if isinstance(value, str) else value, usedforsecurity=False).hexdigest()


BINARY: dict[str, Function] = {
    f.name: f
    for f in (
        _with_constant(plain("ENCODE", "a BYTEA and a form", [((S.BYTES, _TEXT), _TEXT)], _encode), _form),
        _with_constant(plain("DECODE", "a text and a form", [((_TEXT, _TEXT), S.BYTES)], _decode), _form),
        _with_constant(
            plain("CONVERT_FROM", "a BYTEA and an encoding", [((S.BYTES, _TEXT), _TEXT)], _convert_from), _checked
        ),
        _with_constant(
            plain("CONVERT_TO", "a text and an encoding", [((_TEXT, _TEXT), S.BYTES)], _convert_to), _checked
        ),
        _hex_row(),
        plain("GET_BYTE", "a BYTEA and a place", [((S.BYTES, S.INT), S.INT)], _get_byte),
        plain("GET_BIT", "a BYTEA and a place", [((S.BYTES, S.BIGINT), S.INT)], _get_bit),
        plain("SET_BYTE", "a BYTEA, a place and a byte", [((S.BYTES, S.INT, S.INT), S.BYTES)], _set_byte),
        plain("SET_BIT", "a BYTEA, a place and a bit", [((S.BYTES, S.BIGINT, S.INT), S.BYTES)], _set_bit),
        plain("BIT_COUNT", "a BYTEA", [((S.BYTES,), S.BIGINT)], _bit_count),
        plain("MD5", "a text or a BYTEA", [((_TEXT,), _TEXT), ((S.BYTES,), _TEXT)], _md5),
        *(_hash(name) for name in ("SHA1", "SHA224", "SHA256", "SHA384", "SHA512")),
    )
}
