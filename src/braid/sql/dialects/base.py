"""What makes one SQL read differently from another: tables of words, and a function per kind of statement.

In: nothing. Out: `Words`, a value that the lexer and the grammar look into.
Rule: a dialect's words are data. The grammar functions are shared; a dialect names those it has, and brings its own
for what only it has. What the words mean is told by its `Dialect` (`braid.bind.commands`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from braid.errors import Span
from braid.sql import ast
from braid.sql.declare import Declaring, plainly
from braid.sql.tokens import Lexer
from braid.types import UNITS, Scalar, Type

if TYPE_CHECKING:
    from braid.sql.cursor import Cursor

# A rule starts at the first word of its statement; None for a statement that leaves nothing to run (DEFINE).
StatementRule = Callable[["Cursor"], "ast.Statement | None"]
# A rule starts at the word behind CREATE [OR REPLACE]; it gets the number of the token CREATE, and OR REPLACE.
CreateRule = Callable[["Cursor", int, bool], ast.Statement]

# Rules of FROM: for one source with its alias; for the words up to JOIN, as the kind and NATURAL, ASOF or '' (None
# where no join follows); for what says which rows of a join meet, which gets these, and where they stand.
SourceRule = Callable[["Cursor"], ast.Relation]
JoinRule = Callable[["Cursor"], "tuple[ast.How, str] | None"]
Condition = tuple["ast.Expr | None", tuple[ast.Name, ...], "ast.Within | None"]
ConditionRule = Callable[["Cursor", ast.How, str, Span], Condition]

# A rule for a value that starts with a word only this dialect has there; None where it is a name after all.
PrimaryRule = Callable[["Cursor"], "ast.Expr | None"]

# A rule for a predicate that starts with a word behind a value (and NOT); None where the shared grammar has it.
PredicateRule = Callable[["Cursor", "ast.Expr", bool, int], "ast.Expr | None"]

# What no dialect lets stand as a name unless quoted: without these words a statement could be read in two ways.
RESERVED = frozenset(
    {
        *("ALL", "AND", "AS", "BETWEEN", "BY", "CASE", "CREATE", "DISTINCT", "ELSE", "END", "FALSE", "FROM", "FULL"),
        *("GROUP", "HAVING", "IN", "INNER", "INSERT", "INTO", "IS", "JOIN", "LEFT", "LIKE", "NOT", "NULL", "ON", "OR"),
        *("OUTER", "RIGHT", "SELECT", "THEN", "TRUE", "WHEN", "WHERE", "WITH", "WITHIN"),
    }
)
# Names, but never an alias without AS, because they start what may follow.
STARTERS = frozenset({"CROSS", "EMIT", "ESCAPE", "LIMIT", "PARTITION", "WINDOW"})

TYPE_ADVICE = {
    "BINARY": "BYTES",
    "BLOB": "BYTES",
    "BOOL": "BOOLEAN",
    "CHAR": "VARCHAR",
    "DATETIME": "TIMESTAMP",
    "FLOAT": "DOUBLE",
    "INT8": "BIGINT",
    "JSON": "VARCHAR",
    "LONG": "BIGINT",
    "NUMBER": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "REAL": "DOUBLE",
    "SHORT": "INT",
    "SMALLINT": "INT",
    "TEXT": "VARCHAR",
    "TIMESTAMPTZ": "TIMESTAMP",
    "TINYINT": "INT",
    "UUID": "VARCHAR",
    "VARBINARY": "BYTES",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Words:
    name: str  # of the dialect
    title: str  # the system's own name, for messages
    fold: Callable[[str], str]  # what an unquoted name is read as
    statements: Mapping[str, StatementRule]  # by first word
    creates: Mapping[str, CreateRule]  # by the word behind CREATE
    types: Mapping[str, Scalar]  # besides ARRAY, MAP, STRUCT and DECIMAL
    source: SourceRule  # of FROM
    join: JoinRule
    condition: ConditionRule
    lists: bool = False  # FROM a, b
    chains: bool = True  # more than two sources in FROM
    clauses: tuple[str, ...] = ()  # behind FROM, in the order in which they must stand
    shows: tuple[str, ...]  # what SHOW can list
    shows_unsupported: tuple[str, ...] = ()
    bare_properties: frozenset[str] = frozenset()  # WITH properties whose value may be a bare name
    kinds: tuple[str, ...] = ("STREAM", "TABLE")  # what CREATE makes, for messages
    foreign: Mapping[tuple[str, str], str] = field(default_factory=dict)  # two words of other SQLs: advice
    foreign_starts: Mapping[str, str] = field(
        default_factory=dict
    )  # first word of a statement or behind CREATE: advice
    own_type: Callable[[Cursor], Type | None] | None = None  # the type at a cursor that no other dialect has
    type_advice: Mapping[str, str] = field(default_factory=lambda: TYPE_ADVICE)
    units: Mapping[str, int] = field(default_factory=lambda: UNITS)  # of durations, in milliseconds
    name_quotes: str = '`"'
    has_variables: bool = False  # DEFINE x = '...' and ${x}
    since_1970: bool = False  # what a time column holds before 1970 is no time
    hyphens: bool = False  # `a-b` is a name; a subtraction has blanks
    glued_units: bool = False  # durations are written `5s`
    ends_inside: bool = False  # a `;` may stand before `)`
    lambdas: bool = False  # `x => x + 1` is an argument
    paths: bool = False  # `a.b.c` names a field within a field, `[x, y]` is an array
    reserved: frozenset[str] = RESERVED
    never_alias: frozenset[str] = RESERVED | STARTERS
    symbols: frozenset[str] = frozenset()  # that only it has, such as ::
    levels: Mapping[str, int] = field(default_factory=dict)  # how tightly its own operators bind
    predicates: Mapping[str, PredicateRule] = field(default_factory=dict)  # by first word, behind NOT
    call: Callable[[Cursor], ast.Expr] | None = None  # a function call, where it has more than arguments
    blank: str = ""  # a pattern of what is passed over as blanks and comments are
    postgres: bool = False  # $$text$$, E'a\n', rows as (a, b), x.end, x = 1 IS TRUE
    primaries: Mapping[str, PrimaryRule] = field(default_factory=dict)  # by first word or symbol
    suffix: Callable[[Cursor, ast.Expr, int], ast.Expr | None] | None = None  # behind a value: x::INT
    subquery: Callable[[Cursor], ast.Query] | None = None  # in parentheses where a value stands

    # Declarations that are written for the user:
    spelled: Mapping[Scalar, str | None] = field(default_factory=dict)  # types, where not as ours; None: it has none
    array: str = ""  # how types of types are spelled; "": it has none
    map: str = ""
    struct: str = ""
    keyed_tables: bool = False  # a table must have a key
    declares: Callable[[Words, Declaring], str] = plainly
    key_field: str = ""  # the field by which a record's key goes, where every record has one
    live: tuple[str, str] = ("", "")  # what makes a SELECT one that goes on: before it, behind it

    def quoted(self, name: str) -> str:
        """The name in the quotes that this dialect prefers."""
        return f"{self.name_quotes[0]}{name}{self.name_quotes[0]}"

    def lexer(self, text: str, variables: dict[str, str] | None) -> Lexer:
        """Of a text, with what its variables hold; None: it has none."""
        glued = self.units if self.glued_units else ()
        names, inside = self.name_quotes, self.ends_inside
        return Lexer(text, names, variables, self.hyphens, glued, inside, self.symbols, self.postgres, self.blank)
