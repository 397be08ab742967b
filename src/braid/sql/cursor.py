"""How far one statement is parsed, and how it says what it expected.

In: the tokens of a statement and the dialect. Out: tokens taken one by one, names, spans, errors.
Rule: every refusal at the current token goes through `unexpected`, so that an unreadable token, a misspelled keyword
and a word of another SQL are always told as such.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from braid.errors import Span, SqlError
from braid.guess import suggested
from braid.sql.tokens import SourceText, Token, TokenKind
from braid.types import Type

if TYPE_CHECKING:
    from braid.sql.dialects.base import Words

CONSTANTS = ("NULL", "TRUE", "FALSE")
MOST_MADE = 10_000  # types in the place of names in one statement: names in names could double them line by line
MAX_DEPTH = 200  # levels of the syntax tree: later stages walk it by recursion


def closest(word: str, known: Iterable[str], cutoff: float = 0.7) -> str | None:
    """The known word that `word` is probably meant to be."""
    if not 1 < len(word) <= 30:
        return None
    first_words = {k.split()[0]: k for k in reversed(list(known))}
    found = difflib.get_close_matches(word.upper(), first_words, n=1, cutoff=cutoff)
    return first_words[found[0]] if found else None


class Cursor:
    def __init__(
        self,
        source: SourceText,
        tokens: list[Token],
        dialect: Words,
        variables: dict[str, str],
        types: dict[str, Type],
    ) -> None:
        """`variables`: of DEFINE; `types`: of CREATE TYPE. Statements write to both."""
        self.source = source
        self.dialect = dialect
        self.variables = variables
        self.types = types
        self.index = 0
        self.item_start = -1  # the token at which a SELECT item starts: only there may `a->*` stand
        self.notices: list[str] = []  # what the query so far says that is not clean
        self.height = 0  # levels of what was read so far of the expression that is being read
        self._tokens = tokens
        self._last = len(tokens) - 1
        self._depth = 0
        self._made = 0  # types that names of this statement stand for
        self._alias_index = -1  # the last alias without AS: it may be a misspelled keyword

    # ------------------------------------------------------------ looking

    @property
    def now(self) -> Token:
        return self._tokens[self.index]

    def ahead(self, n: int) -> Token:
        return self._tokens[min(self.index + n, self._last)]

    def at_end(self) -> bool:
        return self.now.kind is TokenKind.END

    def at(self, *words: str) -> bool:
        """Whether these keywords follow, in this order."""
        if self._tokens[self.index].value != words[0]:
            return False
        for n, word in enumerate(words):
            token = self.ahead(n)
            if token.kind is not TokenKind.WORD or token.value != word:
                return False
        return True

    def at_symbol(self, *symbols: str) -> bool:
        """Whether these symbols follow, in this order."""
        for n, symbol in enumerate(symbols):
            token = self.ahead(n)
            if token.kind is not TokenKind.SYMBOL or token.text != symbol:
                return False
        return True

    def word(self) -> str:
        """The current keyword in upper case, or ''."""
        return self.now.value if self.now.kind is TokenKind.WORD else ""

    def symbol(self) -> str:
        return self.now.text if self.now.kind is TokenKind.SYMBOL else ""

    # ------------------------------------------------------------- taking

    def advance(self) -> Token:
        token = self.now
        if token.kind is TokenKind.BAD:
            raise self.unexpected("")
        self.index = min(self.index + 1, self._last)
        return token

    def accept(self, *words: str) -> bool:
        if self.at(*words):
            self.index += len(words)
            return True
        return False

    def accept_symbol(self, symbol: str) -> bool:
        token = self._tokens[self.index]
        if token.text == symbol and token.kind is TokenKind.SYMBOL:
            self.index += 1
            return True
        return False

    def constant(self) -> Token | None:
        """Takes a constant that is a value by itself, since `,` or `)` follows."""
        token = self._tokens[self.index]
        kind = token.kind
        if kind is TokenKind.WORD:
            if token.value not in CONSTANTS:
                return None
        elif kind is not TokenKind.NUMBER and kind is not TokenKind.STRING:
            return None
        after = self.ahead(1)
        if after.kind is not TokenKind.SYMBOL or after.text not in (",", ")"):
            return None
        self.index += 1
        return token

    def expect(self, *words: str) -> None:
        """Take these keywords; `unexpected` at the first that is not there."""
        for word in words:
            if not self.accept(word):
                raise self.unexpected(word, word)

    def expect_symbol(self, symbol: str, expected: str = "") -> Token:
        if not self.at_symbol(symbol):
            raise self.unexpected(expected or f"'{symbol}'")
        return self.advance()

    def close(self, opened: Token, symbol: str, expected: str = "") -> None:
        """Take the bracket that closes `opened`."""
        if not self.accept_symbol(symbol):
            span = self.source.span(opened.start, opened.end)
            hint = f"the '{opened.text}' at line {span.line}, column {span.column} is not closed"
            if "','" in expected and self._may_be_item():
                hint = f"a ',' is missing before {self._shown(self.now)}, or {hint}"
            raise self.unexpected(expected or f"'{symbol}'", hint=hint)

    def string(self, expected: str, hint: str | None = None) -> str:
        if self.now.kind is not TokenKind.STRING:
            raise self.unexpected(expected, hint=hint)
        return self.advance().value

    def name(self, expected: str) -> str:
        """A name, folded unless quoted."""
        token = self.now
        if token.kind is TokenKind.NAME:
            self.index += 1
            return token.value
        if token.kind is TokenKind.WORD and token.value not in self.dialect.reserved:
            self.index += 1
            return self.dialect.fold(token.text)
        hint = None
        if token.kind is TokenKind.WORD:
            name = self.dialect.quoted(self.dialect.fold(token.text))
            hint = f"{token.value} is a reserved word; as a name it must be quoted: {name}"
        elif token.kind is TokenKind.STRING:
            quotes = "single" if token.text[0] == "'" else "double"
            hint = f"{quotes} quotes make a string; quote a name with {' or '.join(self.dialect.name_quotes)}"
        raise self.unexpected(expected, hint=hint)

    def label(self, expected: str) -> str:
        """A name where only a name can stand: any word."""
        if self.now.kind is TokenKind.WORD:
            return self.dialect.fold(self.advance().text)
        return self.name(expected)

    def alias(self, expected: str) -> str | None:
        """`AS name`, a bare name that cannot be the start of what follows, or None."""
        if self.accept("AS"):
            return self.name(expected)
        token = self.now
        if token.kind is TokenKind.WORD:
            never = token.value in self.dialect.never_alias or self.at("GRACE", "PERIOD")
            if never or self.foreign() or self.starts_statement():
                return None
        elif token.kind is not TokenKind.NAME:
            return None
        return self.bare_alias(expected)

    def bare_alias(self, expected: str) -> str:
        """A name without AS, which may turn out to be a misspelled keyword."""
        self._alias_index = self.index
        return self.name(expected)

    def starts_statement(self) -> bool:
        """Whether the current word starts a statement here: `FROM a SHOW STREAMS`, but not `FROM a show JOIN`."""
        dialect, after = self.dialect, self.ahead(1)
        if self.word() not in dialect.statements:
            return False
        if self.word() in dialect.reserved or after.kind in (TokenKind.STRING, TokenKind.NAME):
            return True
        is_word = after.kind is TokenKind.WORD
        return is_word and (after.value in dialect.statements or after.value not in dialect.never_alias)

    # ---------------------------------------------------- levels and spans

    def enter(self) -> None:
        """One level deeper; `leave` when done (not on errors: they end the statement)."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._too_deep()

    def leave(self) -> None:
        self._depth -= 1

    def taller(self) -> None:
        """A node stands over what was read so far of its expression."""
        self.height += 1
        self.check_height(self.height)

    def check_height(self, height: int) -> None:
        if height > MAX_DEPTH:
            raise self._too_deep()

    def grow(self, size: int, depth: int) -> None:
        """A name stands for so many types, on so many levels."""
        self._made += size
        if self._depth + depth > MAX_DEPTH:
            raise self._too_deep()
        if self._made > MOST_MADE:
            raise self.error(f"the types of this statement expand to more than {MOST_MADE:,} others", self.now)

    def _too_deep(self) -> SqlError:
        hint = "write a long chain of OR as IN (...), group parts with parentheses, or use several statements"
        return self.error(f"more than {MAX_DEPTH} levels of nesting or operators in a row", self.now, hint)

    def span(self, first: int) -> Span:
        """From the token number `first` to the last one taken."""
        start = self._tokens[first]
        return self.source.span(start.start, max(start.end, self._tokens[max(self.index - 1, first)].end))

    def span_of(self, token: Token) -> Span:
        return self.source.span(token.start, token.end)

    # -------------------------------------------------------------- errors

    def error(self, message: str, at: Token | Span, hint: str | None = None) -> SqlError:
        span = self.span_of(at) if isinstance(at, Token) else at
        return SqlError(message, span, hint, self.source.text)

    def error_from(self, first: int, message: str, hint: str | None = None) -> SqlError:
        """An error about what stands between the token number `first` and the current one."""
        return self.error(message, self.span(first), hint)

    def unexpected(self, expected: str, *words: str, hint: str | None = None) -> SqlError:
        """The current token is not what must come. `words`: keywords that could stand here, to find misspelled ones."""
        token, before = self.now, self._tokens[max(self.index - 1, 0)]
        if token.kind is TokenKind.BAD:
            return self.error(token.value, token, token.hint)
        if self._alias_index == self.index - 1 >= 0:
            meant = closest(before.value, words)
            if meant:
                return self.error(f"unexpected {before.text}", before, suggested([meant]))
        if token.kind is TokenKind.WORD:
            meant = closest(token.value, words) if token.value not in words else None
            if meant:
                return self.error(f"expected {expected}, found {token.text}", token, suggested([meant]))
            if advice := self.foreign():
                return self.error(f"unexpected {token.text}", token, advice)
        if token.kind is TokenKind.SYMBOL and token.text == "=>":
            return self.error("lambda functions are not supported yet", token)
        if token.text == "-" and before.kind is TokenKind.WORD and before.end == token.start:
            after = self.ahead(1)
            if after.start == token.end and after.kind is TokenKind.WORD:
                hint = f"a name that holds - must be quoted: {self.dialect.quoted(f'{before.text}-{after.text}')}"
        if before.kind is TokenKind.STRING and token.kind is TokenKind.WORD and before.end == token.start:
            hint = f"a {before.text[0]} inside a string is doubled: {before.text}{before.text[0]}{token.text} ..."
        if hint is None and before.text == "," and self._cannot_start(token):
            hint = f"remove the comma before {self._shown(token)}, or write what is missing after it"
        return self.error(f"expected {expected}, found {self._shown(token)}", token, hint)

    def _cannot_start(self, token: Token) -> bool:
        """Whether the token can start no item of a list, so that the comma before it is one too many."""
        return token.kind in (TokenKind.SYMBOL, TokenKind.END) or token.value in self.dialect.reserved

    def _may_be_item(self) -> bool:
        """Whether the current token may be one more item of a list, before which the comma is missing."""
        if self.now.kind is TokenKind.WORD:
            return self.word() not in self.dialect.reserved
        return self.now.kind not in (TokenKind.SYMBOL, TokenKind.END)

    def foreign(self) -> str | None:
        """Advice where the current words belong to another SQL: `ORDER BY`, `USING (`."""
        return self.dialect.foreign.get((self.word(), self.ahead(1).text.upper()))

    def _shown(self, token: Token) -> str:
        if token.kind is TokenKind.END:
            return "the end of the statement"
        text = " ".join(token.text.split())  # a message is one line
        text = text if len(text) <= 40 else text[:37] + "..."
        return f"'{text}'" if token.kind is TokenKind.SYMBOL else text
