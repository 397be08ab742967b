"""Times as most write them, read at once: `2020-05-26T23:59:58`, or with a blank for the T, maybe with a fraction.

In: texts. Out: microseconds of whole milliseconds.
Rule: what is read is what `dates.parse_timestamp` reads of it, or nothing is: then that decides.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

_SIZES = (19, *range(21, 30))  # characters


def plain_times(texts: pl.Series) -> pl.Series | None:
    """Times of texts of one length; null where one of them is not of this form. None where lengths differ."""
    sizes, count = texts.str.len_bytes(), len(texts)
    size = sizes.max() if count else None
    if not isinstance(size, int) or size != sizes.min() or size not in _SIZES or texts.null_count():
        return None
    joined: str = texts.str.join("").item()
    at = np.ascontiguousarray(np.frombuffer(joined.encode(), np.uint8).reshape(count, size).T)
    digits = at - np.uint8(ord("0"))
    there = (at[4] == ord("-")) & (at[7] == ord("-")) & (at[13] == ord(":")) & (at[16] == ord(":"))
    there &= (at[10] == ord("T")) | (at[10] == ord(" "))
    there &= at[19] == ord(".") if size > 19 else True
    for i in (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, *range(20, size)):
        there &= digits[i] <= 9

    def number(first: int, many: int) -> npt.NDArray[np.int64]:
        made = np.zeros(count, dtype=np.int64)
        for i in range(first, min(first + many, size)):
            made = made * 10 + digits[i]
        return made

    year, month, day = number(0, 4), number(5, 2), number(8, 2)
    hour, minute, second = number(11, 2), number(14, 2), number(17, 2)
    there &= (month >= 1) & (month <= 12) & (day >= 1) & (hour <= 23) & (minute <= 59) & (second <= 59)
    months = np.where(there, (year - 1970) * 12 + month - 1, 0)
    first, next_one = (m.astype("M8[M]").astype("M8[D]").astype(np.int64) for m in (months, months + 1))
    there &= day <= next_one - first
    ms = number(20, 3) * 10 ** (23 - min(size, 23)) if size > 19 else 0
    us = ((((first + day - 1) * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + ms * 1000
    return pl.Series(texts.name, us).set(pl.Series(~there), None).cast(pl.Datetime("us"))
