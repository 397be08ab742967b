"""The terminal of `braid sql`: history, completion, colours, several lines up to the `;`.

In: keys. Out: whole texts for `shell.Shell`.
Rule: only looks and keys live here; what a text does is the shell's. Without a terminal none of this is loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

from braid.bind.dialects import DIALECTS, dialect_named
from braid.expr.aggregates import AGGREGATES, LENSES
from braid.expr.functions import by_name
from braid.face.shell import COMMANDS, Shell, complete

STYLE = Style.from_dict(
    {
        "keyword": "bold ansiblue",
        "function": "ansicyan",
        "string": "ansigreen",
        "number": "ansimagenta",
        "comment": "italic ansibrightblack",
        "command": "bold",
        "bottom-toolbar": "noreverse ansibrightblack",
    }
)
# What no table of a dialect lists, because only one place of the grammar reads it.
MORE_WORDS = frozenset(
    {
        *("AND", "BY", "CASE", "CAST", "CHANGES", "DAYS", "EXISTS", "GRACE", "HOURS", "IF", "KEY", "MINUTES", "OF"),
        *("PERIOD", "PRIMARY", "REPLACE", "SECONDS", "VALUES"),
    }
)
_PIECES = re.compile(
    r"""(?P<comment> --[^\n]* | /\*(?s:.*?)(?:\*/|\Z) ) | (?P<string> '(?:[^']|'')*'? )
      | (?P<name> "[^"]*"? | `[^`]*`? ) | (?P<number> \b[0-9]+(?:\.[0-9]*)? ) | (?P<word> [^\W\d]\w* )""",
    re.VERBOSE,
)


def function_names(dialect: str) -> frozenset[str]:
    return frozenset((*by_name(dialect), *(LENSES if dialect == "lenses" else AGGREGATES)))


def keywords(dialect: str) -> frozenset[str]:
    """The words of a dialect's statements."""
    known = dialect_named(dialect).words
    listed = (*known.statements, *known.creates, *known.clauses, *known.shows, *known.reserved, *known.never_alias)
    return frozenset(w for text in (*listed, *known.types) for w in text.upper().split()) | MORE_WORDS


class Names(Completer):
    """Keywords, functions, declared names and their columns; behind a dot only the columns; dot commands."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        command = re.fullmatch(r"\s*(\.\w*)", text)
        if command is not None:
            yield from _matching(command[1], COMMANDS)
        elif re.fullmatch(r"\s*\.dialect\s+\w*", text):
            yield from _matching(text.split()[-1] if text[-1] != " " else "", DIALECTS)
        elif (qualified := re.search(r"([\w$]+)\.(\w*)$", text)) is not None:
            yield from _matching(qualified[2], self._columns())
        else:
            begun = re.search(r"\w*$", text)
            word = begun[0] if begun else ""
            if word:
                yield from _matching(word, self._sources())
                yield from _matching(word, self._columns())
                known = function_names(self._shell.dialect) | keywords(self._shell.dialect)
                own = self._shell.program.catalog.functions.named
                yield from _matching(word, sorted(known | own.keys()))

    def _sources(self) -> list[str]:
        return list(self._shell.program.catalog.sources)

    def _columns(self) -> list[str]:
        found = [c.name for s in self._shell.program.catalog.sources.values() for c in s.columns]
        return list(dict.fromkeys(found))


def _matching(begun: str, known: Iterable[str]) -> Iterator[Completion]:
    """In the case in which the user began."""
    for name in known:
        if name.upper().startswith(begun.upper()) and name.upper() != begun.upper():
            text = name.lower() if begun and begun == begun.lower() and name.isupper() else name
            yield Completion(text, start_position=-len(begun))


class Colours(Lexer):
    """Keywords, functions, strings, numbers and comments."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines = coloured(document.text, keywords(self._shell.dialect), function_names(self._shell.dialect))
        return lambda number: lines[number] if number < len(lines) else []


def coloured(text: str, words: frozenset[str], functions: frozenset[str]) -> list[StyleAndTextTuples]:
    """The lines of a text in pieces of one style each."""
    if text.lstrip().startswith("."):
        return [[("class:command", line)] for line in text.split("\n")]
    found: StyleAndTextTuples = []
    at = 0
    for m in _PIECES.finditer(text):
        found.append(("", text[at : m.start()]))
        kind = m.lastgroup or ""
        if kind == "word":
            upper = m[0].upper()
            kind = "keyword" if upper in words else "function" if upper in functions else ""
        found.append((f"class:{kind}" if kind not in ("", "name") else "", m[0]))
        at = m.end()
    found.append(("", text[at:]))
    lines: list[StyleAndTextTuples] = [[]]
    for style, piece, *_ in found:
        first, *more = piece.split("\n")
        lines[-1].append((style, first))
        lines += [[(style, x)] for x in more]
    return lines


def keys(shell: Shell) -> KeyBindings:
    """Enter carries out a whole text, and begins a new line of one that is not."""
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif complete(buffer.text, shell.dialect):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


def history() -> History:
    """Of this user, over all prompts; in memory where no file can be written."""
    root = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = Path(root) / "braid" / "history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def interact(shell: Shell) -> None:
    """Prompts until the end: `.quit` or Ctrl-D. Ctrl-C forgets what has been typed."""

    def state() -> str:
        running = shell.running()
        return f" {shell.dialect}" + (f" · running: {', '.join(running)}" if running else "")

    session: PromptSession[str] = PromptSession(
        history=history(),
        completer=Names(shell),
        complete_while_typing=False,
        lexer=Colours(shell),
        style=STYLE,
        key_bindings=keys(shell),
        multiline=True,
        prompt_continuation=lambda width, number, wrapped: "... ".rjust(width),
        bottom_toolbar=state,
    )
    shell.greet()
    while True:
        shell.news()
        try:
            text = session.prompt(f"{shell.dialect}> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.strip() and not shell.run(text):
            return
