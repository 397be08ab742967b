"""What of a text of SQL may be shown with an error: no value of an option, but for those of listed names.

In: an error, the words of its dialect. Out: the same error; its lines have stars where a secret may stand, and so has
what it says of them.
Rule: the parser's own tokens decide. In options (`WITH (…)`, `OPTIONS (…)`, SET and the like) every value is stars
unless its name is in `HARMLESS` and it is one token; elsewhere in what declares something every string is, and every
comment. Of a statement with a string, name or comment that is not closed no line is shown, nor of options with a token
that cannot be read: where a secret begins and ends is not known then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from braid.errors import SqlError
from braid.sql.dialects.base import Words
from braid.sql.tokens import Token, TokenKind, short

K = TokenKind
HARMLESS = frozenset(
    {
        *("kafka_topic", "format", "key_format", "value_format", "partitions", "replicas", "timestamp"),
        *("timestamp_format", "wrap_single_value", "value_delimiter", "key_delimiter", "retention_ms"),
        *("cleanup_policy", "key_schema_id", "value_schema_id", "key_schema_full_name"),
        *("value_schema_full_name", "value_avro_schema_full_name", "key_protobuf_nullable_representation"),
        *("value_protobuf_nullable_representation", "key", "null_value", "window_type", "window_size"),
        *("query_id", "connector", "type", "primary_key", "force_append_only", "snapshot", "host", "port"),
        *("user", "database", "table", "schema", "ssl_mode", "ssl.root.cert", "table.name", "schema.name"),
        *("catalog.name", "database.name", "max_batch_rows", "commit_checkpoint_interval", "topic"),
        *("connection", "create_table_if_not_exists", "is_exactly_once", "appendonly", "scan.startup.mode"),
        *("scan.startup.timestamp.millis", "message", "rowtime", "delimiter", "separator", "parser"),
        *("skip_header", "character_encoding", "emit_on_window_close", "defaults.topic.autocreate"),
        *("commit.interval.ms", "auto.offset.reset", "processing.guarantee", "compression", "compact"),
        *("cache.max.bytes.buffering", "retention", "timezone", "bytea_output", "search_path"),
        *("batch_expr_strict_mode", "datestyle", "intervalstyle", "client_encoding", "extra_float_digits"),
        *("standard_conforming_strings", "streaming_parallelism", "query_mode", "jsonb.handling.mode"),
    }
)
QUERIES = ("SELECT", "WITH", "VALUES", "INSERT", "UPDATE", "DELETE", "DESCRIBE", "SHOW", "LIST", "PRINT", "DROP",
           "TERMINATE", "PAUSE", "RESUME", "(")  # fmt: skip
SETTINGS = ("braid.", "ksql.")
ASSIGNS = ("=", ":=", "=>", "==")
LISTS = ("WITH", "OPTIONS", "PROPERTIES")  # before the parentheses of options
# A name that a secret stands behind, wherever it does; also misspelled.
_NAMES_SECRET = re.compile(
    r"pass(?!eng)|pas\w?w|ps+w|pwd|secret|token|credential|api_?key|access_?key|private_?key|jaas", re.IGNORECASE
)
_NAME = re.compile(r"[A-Za-z]\w*(?:\.\w+)*")
_REFERS = re.compile(r"\$[A-Z_][A-Z0-9_]*")  # to a variable of the environment
_HOLDS_SECRET = re.compile(r"://|@|\?|=")  # a harmless option's value that may be an address, or more than one value
_LEAST = 4  # characters of a value that is stars in messages, too, without its quotes


class _Defined(dict[str, str]):
    """Variables of any name: what they hold is not asked."""

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "x"

    def get(self, name: str, default: object = None) -> str:
        return "x"


def hidden(error: SqlError, words: Words) -> SqlError:
    """The same error, which shows no secret of its text."""
    if error.text is None or error.shown is not None:
        return error
    error.shown, said = _shown(error.text, words)
    error.message = _without(error.message, said)
    error.hint = error.hint and _without(error.hint, said)
    error.args = (error.message, error.hint, error.details)
    return error


def _without(text: str, said: Sequence[str]) -> str:
    for secret in said:
        if secret in text:
            text = re.sub(rf"(?<![\w]){re.escape(secret)}(?![\w])", "***", text)
    return text


@lru_cache(maxsize=16)
def _shown(text: str, words: Words) -> tuple[str, tuple[str, ...]]:
    """The text with stars, of the same length; lines of which nothing is shown are blank. And what messages must not
    say, the longest first."""
    made, said = list(text), set[str]()
    reading, start = words.lexer(text, _Defined() if words.has_variables else None), 0
    while (tokens := reading.statement()) is not None:
        end = tokens[-1].end
        unread = [t for t in tokens if t.kind is K.BAD]
        stars, declares = _secrets(tokens)
        is_open = any(_is_open(t) for t in unread)
        end = len(text) if is_open else end
        if is_open or any(t in stars for t in unread):
            _blank(made, start, end)
            stars |= {t: True for t in tokens if t.kind in (K.BAD, K.STRING, K.NAME)}
        for t, anywhere in stars.items():
            _star(made, t.start, t.end)
            said.update(_sayings(t, anywhere))
        if declares and not is_open:
            for a, b in pairwise(tokens):
                _star(made, a.end, b.start)  # comments
        start = end
    return "".join(made), tuple(sorted(said, key=len, reverse=True))


def _is_open(t: Token) -> bool:
    """Whether a token that cannot be read took the rest of the text."""
    return t.kind is K.BAD and t.value.endswith("is not closed")


def _sayings(t: Token, anywhere: bool) -> Iterator[str]:
    """How a message may say a token: as it is written; `anywhere`, without its quotes, too."""
    if t.kind is not K.WORD and len(t.text) >= _LEAST:
        yield from (t.text, short(t.text))
    if anywhere and len(t.value) >= _LEAST and t.kind is not K.BAD and t.value != "SECRET":
        yield from (t.value, t.text.strip("'\"`") or t.text)


def _star(made: list[str], start: int, end: int) -> None:
    for i in range(start, end):
        if not made[i].isspace() and made[i] not in "'\"`;":
            made[i] = "*"


def _blank(made: list[str], start: int, end: int) -> None:
    """Blanks out whole lines, those that the statement only touches, too."""
    while start > 0 and made[start - 1].splitlines() != [""]:
        start -= 1
    while end < len(made) and made[end].splitlines() != [""]:
        end += 1
    for i in range(start, end):
        if made[i].splitlines() != [""]:
            made[i] = " "


# ------------------------------------------------------------------ statements


def _secrets(tokens: Sequence[Token]) -> tuple[dict[Token, bool], bool]:
    """The tokens of a statement that are stars, and of each whether it is a value of an option; whether the statement
    declares something."""
    tokens = [t for t in tokens if t.kind is not K.END]
    first = next((t for t in tokens if t.value not in ("EXPLAIN", "ANALYZE")), None)
    declares = first is not None and first.value not in QUERIES
    stars, i, depth = dict[Token, bool](), 0, 0
    if first is not None and first.value in ("SET", "DEFINE"):
        for item in _items(tokens[tokens.index(first) + 1 :]):
            secret = bool(item) and bool(_NAMES_SECRET.search(item[0].value))
            stars |= {t: secret or t.kind is K.WORD for t in _values(item)}
        return stars, True
    while i < len(tokens):
        t, before = tokens[i], tokens[i - 1] if i else None
        if declares and t.value == "AS" and i + 1 < len(tokens) and tokens[i + 1].value in QUERIES:
            declares = False
            i += 1
            continue
        others = declares and depth == 0 and t.text == "(" and not _may_be_columns(tokens[:i])
        if t.text == "(" and before is not None and (others or _are_options(tokens, i, declares)):
            stop = _closing(tokens, i)
            for item in _items(tokens[i + 1 : stop]):
                stars |= dict.fromkeys(_values(item), True)
            i = stop
            continue
        if declares and t.text in ASSIGNS:
            item = _item(tokens, i)
            stars |= dict.fromkeys(_values(item), bool(_NAMES_SECRET.search(item[0].value)))
            i += len(item) - item.index(t)
            continue
        depth += (t.text == "(") - (t.text == ")")
        names = i + 1 < len(tokens) and tokens[i + 1].text in ASSIGNS
        names = names or (before is not None and before.value == "UNSET" and bool(_NAME.fullmatch(t.value)))
        if declares and not names and (t.kind is K.BAD or (t.kind is K.STRING and depth <= 0)):
            stars.setdefault(t, False)
        if before is not None and t.kind is not K.SYMBOL and _follows_a_name(tokens, i):
            stars[t] = True
        elif before in stars and (t.kind in (K.STRING, K.NAME, K.BAD) or _goes_on(before, t)):
            stars[t] = stars[before]
        i += 1
    return stars, first is not None and first.value not in QUERIES


def _goes_on(before: Token, t: Token) -> bool:
    """Whether a word stands right behind a string: a quote too many ended it."""
    return t.kind is K.WORD and before.kind is K.STRING and before.end == t.start


def _are_options(tokens: Sequence[Token], at: int, declares: bool) -> bool:
    """Whether a parenthesis begins options: behind a word that says so, or with `name =` in what declares something."""
    before = [t.value for t in tokens[max(at - 2, 0) : at]]
    if before[-1] in LISTS or before[0] == "ENCODE":
        return True
    name = list(_name(tokens[at + 1 :]))
    behind = at + 1 + len(name)
    return declares and bool(name) and behind < len(tokens) and tokens[behind].text in ASSIGNS


def _may_be_columns(before: Sequence[Token]) -> bool:
    """Whether a parenthesis behind these tokens may hold columns: the first one of a declaration."""
    said = [t.value for t in before if t.value not in ("EXPLAIN", "ANALYZE")]
    return said[:1] in (["CREATE"], ["ASSERT"], ["ALTER"]) and "(" not in said and not {"FROM", *LISTS} & set(said)


def _closing(tokens: Sequence[Token], at: int) -> int:
    """Where the parenthesis that opens at `at` closes, or the tokens end."""
    depth = 0
    for i in range(at, len(tokens)):
        depth += (tokens[i].text == "(") - (tokens[i].text == ")")
        if depth == 0:
            return i
    return len(tokens)


def _items(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """What stands between commas."""
    item, depth = list[Token](), 0
    for t in tokens:
        depth += (t.text in ("(", "[")) - (t.text in (")", "]"))
        if t.text == "," and depth == 0:
            yield item
            item = []
        else:
            item.append(t)
    yield item


def _item(tokens: Sequence[Token], at: int) -> list[Token]:
    """The name before the `=` at `at`, and what stands behind, up to a comma or the end."""
    first = max(at - 1, 0)
    while first > 1 and tokens[first - 1].text == ".":
        first -= 2
    last = at
    while last + 1 < len(tokens) and tokens[last + 1].text not in (",", ")") and tokens[last + 1].value != "AS":
        last += 1
    return list(tokens[first : last + 1])


def _name(item: Sequence[Token]) -> Iterator[Token]:
    """The tokens of the name that an item begins with: one, or some with dots between."""
    for n, t in enumerate(item):
        if n % 2 and t.text != ".":
            return
        if n % 2 == 0 and t.kind not in (K.WORD, K.NAME, K.STRING):
            return
        yield t


def _values(item: Sequence[Token]) -> list[Token]:
    """Of an option the tokens that are stars."""
    name = list(_name(item))
    called = "".join(t.text if t.kind in (K.WORD, K.SYMBOL) else t.value for t in name).lower()
    rest = [t for t in item[len(name) :] if t.text not in ASSIGNS and t.value != "TO"]
    if called == "time" and rest and rest[0].value == "ZONE":
        called, rest = "timezone", rest[1:]
    harmless = called in HARMLESS or (called.startswith(SETTINGS) and not _NAMES_SECRET.search(called))
    if len(rest) == 1 and rest[0].kind is K.STRING and _REFERS.fullmatch(rest[0].value):
        return []
    if harmless and len(rest) == 1 and rest[0].kind is not K.BAD and not _HOLDS_SECRET.search(rest[0].value):
        return []
    strings = [t for t in name if t.kind is K.STRING and not _NAME.fullmatch(t.value)]
    return strings + rest


def _follows_a_name(tokens: Sequence[Token], at: int) -> bool:
    """Whether a token is what a name such as `password` is compared with, or stands right behind it."""
    at_once = at - 1
    if at_once > 0 and tokens[at_once].kind is K.WORD and tokens[at_once].end == tokens[at].start:  # e'…'
        at_once -= 1
    while at_once > 0 and tokens[at_once].text in ("(", "[", "-", "+"):
        at_once -= 1
    behind = at_once - (tokens[at_once].text in ASSIGNS)
    if behind < 0 or tokens[behind].kind not in (K.WORD, K.NAME, K.STRING):
        return False
    if tokens[behind].value == "SECRET" and behind > 0 and tokens[behind - 1].text in ASSIGNS:
        return True
    direct = behind == at_once
    return bool(_NAMES_SECRET.search(tokens[behind].value)) and (not direct or tokens[at].kind in (K.STRING, K.BAD))
