"""From SQL text to tokens, one statement at a time.

In: the text, which characters quote names, and the variables that `${x}` stands for. Out: a list of tokens up to the
next `;`, ending in an END token.
Rule: lexing never raises. What cannot be read becomes a BAD token, so that the parser reports the first problem of the
text, whichever of the two finds it. A statement is lexed when the one before it has been parsed: DEFINE acts on it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection
from enum import Enum, auto
from itertools import accumulate
from typing import NamedTuple

from braid.errors import Span


class TokenKind(Enum):
    WORD = auto()  # unquoted: a keyword or a name, as the place where it stands says
    NAME = auto()  # quoted name
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()
    BAD = auto()
    END = auto()  # the `;` or the end of the text


class Token(NamedTuple):
    """`text` as written; `value` in upper case for a WORD, unquoted for NAME and STRING, the message for BAD."""

    kind: TokenKind
    text: str
    value: str
    start: int
    end: int
    hint: str | None = None  # of a BAD token


class SourceText:
    """The text and where its lines start, to turn offsets into spans."""

    def __init__(self, text: str) -> None:
        self.text = text
        lines = text.splitlines(keepends=True)  # as an error finds the line that it shows
        self._starts = [0, *accumulate(len(line) for line in lines)]
        if lines and lines[-1] == lines[-1].splitlines()[0]:
            self._starts.pop()  # no line starts behind a last line that is not ended

    def span(self, start: int, end: int) -> Span:
        line = bisect_right(self._starts, start)
        return Span(start, end, line, start - self._starts[line - 1] + 1)


_TOKEN_TEXT = r"""
    (?P<space> \s+ | --[^\r\n]* | /\*(?s:.*?)\*/ )
  | (?P<word> [^\W\d][\w@]* )
  | (?P<number> (?: [0-9]+(?:\.[0-9]*)? | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? ) (?P<glued> [\w@]* )
  | (?P<quoted> '(?>[^']*(?:''[^']*)*)' | "(?>[^"]*(?:""[^"]*)*)" | `(?>[^`]*(?:``[^`]*)*)` )
  | (?P<variable> \$\{ [A-Za-z_][A-Za-z0-9_]* \} )
  | (?P<symbol> -> | => | := | <= | >= | <> | != | == | :: | && | \|\| | [-;,()\[\].*%+=<>] | /(?!\*) )
    """
_TOKEN = re.compile(_TOKEN_TEXT, re.VERBOSE)
_TOKEN_WITH_HYPHENS = re.compile(_TOKEN_TEXT.replace(r"[^\W\d][\w@]*", r"[^\W\d][\w@]*(?:-[\w@]+)*"), re.VERBOSE)
_POSTGRES_STRINGS = r"""
    (?P<dollar> \$(?P<tag>(?:[A-Za-z_][A-Za-z0-9_]*)?)\$ (?P<inside>(?s:.*?)) \$(?P=tag)\$ )
  | (?P<escaped> [eE]'(?>(?:[^'\\]|\\(?s:.)|'')*)' )
  | (?P<operator> ->> | \#>>? | \#- | :(?![:=]) | \?[|&]? | !?~~?\*? | \^@ | \^ | @> | <@ | @ | << | >> | &(?!&)
                | \|(?!\|) | \# )
  |"""
_TOKEN_OF_POSTGRES = re.compile(_POSTGRES_STRINGS + _TOKEN_TEXT, re.VERBOSE)
# Most tokens of a long statement, read by one match: blanks, then one of these and nothing that would make it longer.
_SHORT = re.compile(
    r"""\s*(?:([(),])|([0-9]{1,9}(?:\.[0-9]{1,9})?)(?![\w@.])|'([^'$]*)'(?!')|([A-Za-z_][A-Za-z0-9_]*)(?![\w@'\-]))""",
)
_DOLLAR = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*)?\$")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|''", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_DIGIT_NAME = re.compile(r"[0-9]+[A-Za-z_][A-Za-z0-9_]*")
_LONGEST = 1_000_000  # characters of a string with its variables: DEFINE can double them line by line
_IN_STRING = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")

_NOT_SYMBOLS = {
    "==": ("unknown operator '=='", "write = to compare"),
    "::": ("unknown operator '::'", "write CAST(x AS TYPE)"),
    "&&": ("unknown operator '&&'", "write AND"),
}
_NOT_CHARACTERS = {
    **dict.fromkeys("‘’´′", "write the straight quote ' around strings"),
    **dict.fromkeys("“”″", "write ' around strings, \" or ` around names"),
    **dict.fromkeys("–—−", "write the plain minus -"),
    "!": "write != to compare, NOT to negate",
    "|": "write || to join strings, OR between conditions",
    "&": "write AND",
    "?": "parameters are not supported: write the value",
    ":": "write := in MAP(...) and STRUCT(...)",
    "{": "STRUCT(a := 1) makes a structure, MAP('k' := 1) a map",
}


class Lexer:
    """`name_quotes`: the characters that quote names (the other quotes make strings). `variables` is None in a dialect
    without `${x}`; else the parser writes to it. `hyphens`: `a-b` is one word. `glued`: words that may follow a number
    without a blank (`5s`). `ends_inside`: a `;` before `)` does not end the statement, it is a symbol.
    `symbols`: those that not every dialect has. `postgres`: strings as $$text$$ and E'a\\n' too, and its operators.
    `blank`: a pattern of what else is passed over."""

    def __init__(
        self,
        text: str,
        name_quotes: str,
        variables: dict[str, str] | None,
        hyphens: bool = False,
        glued: Collection[str] = (),
        ends_inside: bool = False,
        symbols: frozenset[str] = frozenset(),
        postgres: bool = False,
        blank: str = "",
    ) -> None:
        self._text = text
        self._symbols = symbols
        self._name_quotes = name_quotes
        self._variables = variables
        self._pattern = _TOKEN_OF_POSTGRES if postgres else _TOKEN_WITH_HYPHENS if hyphens else _TOKEN
        self._blank = re.compile(blank) if blank else None
        self._postgres = postgres
        self._glued = glued
        self._ends_inside = ends_inside
        self._at = 1 if text.startswith("\ufeff") else 0

    def statement(self) -> list[Token] | None:
        """The tokens up to the next `;`, or None at the end of the text."""
        tokens: list[Token] = []
        add, short, text = tokens.append, _SHORT.match, self._text
        symbol, number, string, word = TokenKind.SYMBOL, TokenKind.NUMBER, TokenKind.STRING, TokenKind.WORD
        strings = "'" not in self._name_quotes
        while self._at < len(text):
            if (m := short(text, self._at)) is not None:
                group = m.lastindex or 0
                start, end = m.span(group)
                found = m[group]
                if group == 1:
                    add(Token(symbol, found, found, start, end))
                elif group == 2:
                    add(Token(number, found, found, start, end))
                elif group == 4:
                    add(Token(word, found, found.upper(), start, end))
                elif strings:
                    add(Token(string, text[start - 1 : end + 1], found, start - 1, end + 1))
                if group != 3 or strings:
                    self._at = m.end()
                    continue
            token, self._at = self._token(text, self._at)
            if token is None:
                continue
            if token.kind is TokenKind.SYMBOL and token.text == ";" and not (self._ends_inside and self._closes_next()):
                tokens.append(Token(TokenKind.END, ";", ";", token.start, token.end))
                return tokens
            if token.kind is TokenKind.NAME and token.text.startswith("${"):
                tokens += self._expanded(token)
            elif _DIGIT_NAME.fullmatch(token.text) and tokens and tokens[-1].value == "AS":  # SELECT x AS 1st
                tokens.append(Token(TokenKind.WORD, token.text, token.text.upper(), token.start, token.end))
            else:
                tokens.append(token)
        if not tokens:
            return None
        end = tokens[-1].end
        tokens.append(Token(TokenKind.END, "", "", end, end))
        return tokens

    def _closes_next(self) -> bool:
        """Whether a `)` comes next."""
        token, at = None, self._at
        while token is None and at < len(self._text):
            token, at = self._token(self._text, at)
        return token is not None and token.text == ")"

    def _token(self, text: str, at: int) -> tuple[Token | None, int]:
        """The token at `at` (None for blanks and comments) and where the next one starts."""
        m = self._pattern.match(text, at)
        if m is None and self._blank is not None and (passed := self._blank.match(text, at)) is not None:
            return None, passed.end()
        if m is None:
            if self._postgres and _DOLLAR.match(text, at):
                return _unclosed(text, at, "a string is not closed", "write $$ at its end, or the tag it begins with")
            return _unreadable(text, at)
        written, end = m[0], m.end()
        match m.lastgroup:
            case "space":
                return None, end
            case "word" if not written.isascii():
                hint = f"a name with characters beyond a-z must be quoted with {self._name_quotes[0]}"
                return Token(TokenKind.BAD, written, f"unexpected {short(written)}", at, end, hint), end
            case "word":
                return Token(TokenKind.WORD, written, written.upper(), at, end), end
            case "glued" if m["glued"].upper() in self._glued:
                return Token(TokenKind.NUMBER, m["number"], m["number"], at, m.end("number")), m.end("number")
            case "glued" if m["glued"]:
                message = f"a number runs into a word: {short(written)}"
                quote = self._name_quotes[0]
                hint = f"put a blank between them; a name that starts with a digit must be quoted with {quote}"
                return Token(TokenKind.BAD, written, message, at, end, hint), end
            case "glued":
                return Token(TokenKind.NUMBER, written, written, at, end), end
            case "quoted":
                return self._quoted(written, at, end), end
            case "dollar":
                return Token(TokenKind.STRING, written, m["inside"], at, end), end
            case "escaped":
                return _escaped(written, at, end), end
            case "operator":
                return Token(TokenKind.SYMBOL, written, written, at, end), end
            case "variable" if self._variables is not None:
                return Token(TokenKind.NAME, written, written, at, end), end
            case "symbol" if written not in _NOT_SYMBOLS or written in self._symbols:
                return Token(TokenKind.SYMBOL, written, written, at, end), end
            case "symbol":
                message, hint = _NOT_SYMBOLS[written]
                return Token(TokenKind.BAD, written, message, at, end, hint), end
            case _:
                return Token(TokenKind.BAD, written, f"unexpected {written}", at, end), end

    def _quoted(self, written: str, at: int, end: int) -> Token:
        quote = written[0]
        value = written[1:-1].replace(quote * 2, quote)
        if self._variables is not None and "${" in value:
            for dollar, name in _IN_STRING.findall(value):
                if not dollar and name.upper() not in self._variables:
                    return self._undefined(name, written, at, end)
            known = self._variables
            grown = len(value) + sum(len(known.get(name.upper(), "")) for _, name in _IN_STRING.findall(value))
            if grown > _LONGEST:
                return Token(TokenKind.BAD, written, "the string grows too long with its variables", at, end)
            value = _IN_STRING.sub(lambda m: m[0][1:] if m[1] else known[m[2].upper()], value)
        if quote not in self._name_quotes:
            return Token(TokenKind.STRING, written, value, at, end)
        if not value:
            return Token(TokenKind.BAD, written, "a quoted name is empty", at, end)
        return Token(TokenKind.NAME, written, value, at, end)

    def _expanded(self, variable: Token) -> list[Token]:
        """The tokens that `${x}` stands for, all at its place in the text."""
        name, start, end = variable.text[2:-1], variable.start, variable.end
        value = (self._variables or {}).get(name.upper())
        if value is None:
            return [self._undefined(name, variable.text, start, end)]
        tokens: list[Token] = []
        at = 0
        while at < len(value):
            token, at = self._token(value, at)
            if token is None:
                continue
            if token.text == ";" or token.text.startswith("${"):
                message = f"variable {name} holds {short(token.text)}; a variable is a part of one statement"
                token = Token(TokenKind.BAD, token.text, message, start, end)
            tokens.append(Token(token.kind, token.text, token.value, start, end, token.hint))
        return tokens

    @staticmethod
    def _undefined(name: str, written: str, at: int, end: int) -> Token:
        hint = f"write DEFINE {name} = '...'; before it, or $${{{name}}} in a string for the text itself"
        return Token(TokenKind.BAD, written, f"variable {name} is not defined", at, end, hint)


def _unreadable(text: str, at: int) -> tuple[Token, int]:
    """What no token starts with, and where to go on: an unclosed string, name or comment takes the rest of the text."""
    char = text[at]
    unclosed = {
        "'": ("a string is not closed", "write ' at its end; a quote inside a string is doubled: 'it''s'"),
        '"': ("a quoted name is not closed", 'write " at its end'),
        "`": ("a quoted name is not closed", "write ` at its end"),
        "/": ("a comment is not closed", "write */ at its end"),
    }
    if char in unclosed:
        return _unclosed(text, at, *unclosed[char])
    if text.startswith("${", at):
        return Token(TokenKind.BAD, "${", "a variable is not written ${name}", at, at + 2), at + 2
    shown = char if char.isprintable() else f"character U+{ord(char):04X}"
    return Token(TokenKind.BAD, char, f"unexpected {shown}", at, at + 1, _NOT_CHARACTERS.get(char)), at + 1


def _unclosed(text: str, at: int, message: str, hint: str) -> tuple[Token, int]:
    """What is not closed takes the rest of the text."""
    line = text[at:].splitlines()[0]
    return Token(TokenKind.BAD, line, message, at, at + len(line), hint), len(text)


def _escaped(written: str, at: int, end: int) -> Token:
    """E'…': a string with back-slashes."""
    try:
        value = _ESCAPE.sub(_character, written[2:-1])
        value.encode()
    except (ValueError, OverflowError):
        return Token(TokenKind.BAD, written, "a back-slash must come before a character", at, end,
                     "write it as itself, or \\\\ for a back-slash")  # fmt: skip
    return Token(TokenKind.STRING, written, value, at, end)


def _character(m: re.Match[str]) -> str:
    """What a back-slash and the characters behind it stand for."""
    octal, short, code, long, plain = m.groups()
    if octal:
        return chr(int(octal, 8))
    if short or code or long:
        return chr(int(short or code or long, 16))
    return "'" if plain is None else _ESCAPES.get(plain, plain)


def short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
