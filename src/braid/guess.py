"""What a misspelled name is probably meant to be.

In: a name, those that are known. Out: the nearest of them, in the order of likeness.
Rule: case never counts. Letters wrong, missing or swapped, a name cut short (cust for customer) or without its vowels
(qty for quantity) are alike; a name of one letter is like that letter twice only. What differs in half of its letters,
or in two of a short name's, is another word (foo, floor). No guess is better than a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import SequenceMatcher

LONGEST = 100  # letters: what is longer is no misspelled name
ALIKE = 0.7  # of the letters, at least


def guesses(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Those of the known names that `name` may stand for, the likeliest first."""
    if len(name) > LONGEST:
        return []
    scored = [(_likeness(name.lower(), k.lower()), -i, k) for i, k in enumerate(dict.fromkeys(known))]
    return [k for score, _, k in sorted(scored, reverse=True) if score >= ALIKE][:most]


def meant(name: str, known: Iterable[str], otherwise: str, most: int = 1, ways: Callable[[str], str] = str) -> str:
    """The hint for a name that is not known: what may be meant, or else something else to say. `ways`: how a name that
    is known must be written."""
    return suggested(map(ways, guesses(name, known, most)), otherwise)


def suggested(found: Iterable[str | None], otherwise: str = "") -> str:
    """The question in which a hint names what may be meant, if there is anything; or else something else."""
    hint = " or ".join(dict.fromkeys(x for x in found if x is not None))
    return f"did you mean {hint}?" if hint else otherwise


def _likeness(a: str, b: str) -> float:
    if a == b:
        return 1.0
    short, long = sorted((a, b), key=len)
    if len(long) > LONGEST:
        return 0.0
    if len(short) < 2:
        return ALIKE if long == 2 * short else 0.0
    ratio = SequenceMatcher(None, a, b).ratio()
    if len(short) == 2:  # one letter more, or the two swapped
        return ratio if (len(long) == 3 and ratio >= 0.8) or short == long[::-1] else 0.0
    if long.startswith(short) or (len(long) <= 3 * len(short) and _without_vowels(short, long)):
        return max(ratio, ALIKE)
    return ratio if ratio >= ALIKE and _slips(a, b) < max(2, len(long) // 2) else 0.0


def _slips(a: str, b: str) -> int:
    """How many letters are wrong, missing, too many, or swapped with the next (Damerau, Levenshtein)."""
    before, row = list[int](), list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        two_before, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            least = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            swapped = i > 1 and j > 1 and (x, a[i - 2]) == (b[j - 2], y)
            row.append(min(least, two_before[j - 2] + 1) if swapped else least)
    return row[-1]


def _without_vowels(short: str, long: str) -> bool:
    """qty, quantity: the ends agree, and the rest comes in the same order."""
    letters = iter(long)
    return short[0] == long[0] and short[-1] == long[-1] and all(x in letters for x in short)
