"""Functions of batch queries: those that RisingWave has and DuckDB answers.

In: a call as read, its arguments as text. Out: text for DuckDB.
Rule: what stands in no list here is refused. None of these reads a file, a setting, a table or a variable.
"""

from __future__ import annotations

from difflib import get_close_matches

from braid.errors import SqlError
from braid.sql import ast


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


AGGREGATES: frozenset[str] = _words("""
    ANY_VALUE APPROX_COUNT_DISTINCT ARRAY_AGG AVG BIT_AND BIT_OR BIT_XOR BOOL_AND BOOL_OR CORR COUNT COVAR_POP
    COVAR_SAMP EVERY FIRST_VALUE LAST_VALUE MAX MEDIAN MIN MODE PERCENTILE_CONT PERCENTILE_DISC REGR_AVGX
    REGR_AVGY REGR_COUNT REGR_INTERCEPT REGR_R2 REGR_SLOPE REGR_SXX REGR_SXY REGR_SYY STDDEV STDDEV_POP
    STDDEV_SAMP STRING_AGG SUM VARIANCE VAR_POP VAR_SAMP
""")
WINDOWS: frozenset[str] = _words("""
    CUME_DIST DENSE_RANK FIRST_VALUE LAG LAST_VALUE LEAD NTH_VALUE NTILE PERCENT_RANK RANK ROW_NUMBER
""")
_SCALARS: frozenset[str] = _words("""
    ABS ACOS ACOSH AGE ARRAY_APPEND ARRAY_CAT ARRAY_CONTAINS ARRAY_DISTINCT ARRAY_LENGTH ARRAY_POSITION
    ARRAY_PREPEND ARRAY_REVERSE ARRAY_SORT ARRAY_TO_STRING ASCII ASIN ASINH ATAN ATAN2 ATANH BIT_COUNT
    BIT_LENGTH CARDINALITY CBRT CEIL CEILING CHARACTER_LENGTH CHAR_LENGTH CHR COALESCE CONCAT CONCAT_WS COS COSH
    COT DATE_PART DATE_TRUNC DECODE DEGREES ENCODE ENDS_WITH EXP FACTORIAL FLOOR FORMAT GCD GREATEST GROUPING
    HEX ISFINITE ISINF ISNAN LCM LEAST LEFT LENGTH LEVENSHTEIN LN LOG LOG10 LOG2 LOWER LPAD LTRIM MAKE_DATE
    MAKE_TIME MAKE_TIMESTAMP MD5 MOD NOW NULLIF OCTET_LENGTH OVERLAY PG_TYPEOF PI POSITION POW POWER RADIANS
    RANDOM REGEXP_MATCHES REGEXP_REPLACE REGEXP_SPLIT_TO_ARRAY REPEAT REPLACE REVERSE RIGHT ROUND RPAD RTRIM
    SHA1 SHA256 SIGN SIN SINH SPLIT_PART SQRT STARTS_WITH STRING_TO_ARRAY STRPOS SUBSTR SUBSTRING TAN TANH
    TIMEZONE TO_HEX TO_TIMESTAMP TRANSLATE TRIM TRUNC UNICODE UPPER
""")
_RENAMED = {
    "ARRAY_MAX": "list_max",
    "ARRAY_MIN": "list_min",
    "ARRAY_SUM": "list_sum",
    "BTRIM": "trim",
    "CURRENT_TIMESTAMP": "now",
    "DATE_BIN": "time_bucket",
    "EVERY": "bool_and",
    "FIRST_VALUE": "first",
    "LAST_VALUE": "last",
    "PROCTIME": "now",
}
_SETS = {"GENERATE_SERIES": "generate_series", "UNNEST": ""}
CONSTANTS = {
    "current_date": "current_date",
    "current_timestamp": "now()",
    "localtimestamp": "CAST(now() AS TIMESTAMP)",
}

NAMES = AGGREGATES | WINDOWS | _SCALARS | _RENAMED.keys() | _SETS.keys()
DUCK_NAMES = frozenset((*map(str.lower, NAMES), *_RENAMED.values()))  # all that DuckDB is ever asked to call


def called(e: ast.Call, args: list[str], of_rows: bool = False, window: bool = False) -> str:
    """A call of a function that there is. `of_rows`: one that gives rows may stand here; `window`: OVER follows."""
    shown = e.name.lower()
    if e.name not in NAMES:
        near = get_close_matches(e.name, NAMES, n=1, cutoff=0.7)
        hint = f"did you mean {near[0].lower()}?" if near else "docs/dialects/risingwave.md lists the functions"
        raise SqlError(f"there is no function {shown}", e.span, hint)
    given = ", ".join(args)
    if e.name in _SETS:
        if not of_rows:
            raise SqlError(f"{shown} gives rows", e.span, "write it in FROM, or alone as an item of SELECT")
        return f"unnest({given})" if e.name == "UNNEST" else f"unnest({_SETS[e.name]}({given}))"
    if e.name in WINDOWS and not window:
        if e.name not in AGGREGATES:
            raise SqlError(f"{shown} needs OVER", e.span, f"write {shown}(…) OVER (ORDER BY …)")
    elif window:
        return f"{shown}({given})"
    return f"{_RENAMED.get(e.name, shown)}({given})"
