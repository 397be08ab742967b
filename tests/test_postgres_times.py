"""PostgreSQL's dates, times and intervals: tables of edges, whose expectations a real PostgreSQL 15 gave.

A line `text -> value` of READ is a CAST from text, and back to text; `!`: an error. CALLS has an expression, and below
it its value. Where Braid differs on purpose the tables have Braid's: a zone is written `+00:00`, as RisingWave does,
there is no time of day 24:00:00, and no year 294276.
"""

from __future__ import annotations

import datetime as dt
import math
import re

import polars as pl
import pytest

from braid.expr import typing
from braid.expr.compile import evaluate
from braid.expr.functions import FUNCTIONS
from braid.expr.nodes import Col, Expr, Lit
from braid.expr.postgres.base import takes
from braid.expr.postgres.calendar import DAY, FIRST_DAY, LAST_DAY, civil, civil_of, column, day_number, days_of
from braid.expr.postgres.intervals import INTERVALS, TIME_OPERATORS, operator
from braid.expr.postgres.times import TIMES
from braid.expr.postgres.times_text import CASTS, converted, moments, texts, to_moment
from braid.expr.postgres.to_char import TO_CHAR
from braid.expr.postgres.to_timestamp import READERS
from braid.expr.signatures import Refused
from braid.types import Decimal, Scalar, Type, polars_type
from postgres_values import why_of

S = Scalar
TYPES: dict[str, Scalar] = {
    "date": S.DATE, "time": S.TIME, "timestamp": S.TIMESTAMP, "timestamptz": S.TIMESTAMPTZ, "interval": S.INTERVAL,
    "int": S.INT, "float8": S.DOUBLE, "text": S.VARCHAR,
}  # fmt: skip
READ = {
    "date": """
        2024-01-05 -> 2024-01-05
        1999-1-8 -> 1999-01-08
        January 8, 1999 -> 1999-01-08
        1/18/1999 -> 1999-01-18
        08-Jan-99 -> 1999-01-08
        Jan-08-99 -> 1999-01-08
        19990108 -> 1999-01-08
        990108 -> 1999-01-08
        1999.008 -> 1999-01-08
        J2451187 -> 1999-01-08
        January 8, 99 BC -> 0099-01-08 BC
        0044-03-15 BC -> 0044-03-15 BC
        10000-01-01 -> 10000-01-01
        12345-1-1 -> 12345-01-01
        4714-11-24 BC -> 4714-11-24 BC
        4714-11-23 BC -> !
        0000-01-01 -> !
        2023-02-29 -> !
        2024-02-29 -> 2024-02-29
        1900-02-29 -> !
        2000-02-29 -> 2000-02-29
        2024-13-01 -> !
        2024-02-29 24:00:00 -> 2024-02-29
        epoch -> 1970-01-01
        5 Jan 2024 -> 2024-01-05
        1-2-3 -> 2003-01-02
        Mon Jan 5 10:11:12 2024 -> 2024-01-05
        abc -> !
         -> !
        2024-01 -> !
        now -> !
        infinity -> !
    """,
    "time": """
        04:05:06.789 -> 04:05:06.789
        04:05 -> 04:05:00
        040506 -> 04:05:06
        0405 -> 04:05:00
        04:05 AM -> 04:05:00
        04:05 PM -> 16:05:00
        12:05 AM -> 00:05:00
        13:05 PM -> !
        04:05:06.789-8 -> 04:05:06.789
        2003-04-12 04:05:06 America/New_York -> 04:05:06
        04:05:06 America/New_York -> !
        24:00:00 -> !
        23:59:59.9999996 -> !
        23:59:59.9999994 -> 23:59:59.999999
        25:00 -> !
        10:60 -> !
        allballs -> 00:00:00
        1:2:3 -> 01:02:03
        T10:00 -> 10:00:00
    """,
    "timestamp": """
        2024-01-01 10:00 -> 2024-01-01 10:00:00
        2024-01-01T10:00:00Z -> 2024-01-01 10:00:00
        2024-01-01 10:00:00.1234567 -> 2024-01-01 10:00:00.123457
        2024-01-01 10:00:00.1234565 -> 2024-01-01 10:00:00.123456
        2024-01-01 10:00:00+02 -> 2024-01-01 10:00:00
        20240105T101112 -> 2024-01-05 10:11:12
        20240105 101112.5 -> 2024-01-05 10:11:12.5
        2024-02-29 24:00:00 -> 2024-03-01 00:00:00
        2024-12-31 23:59:60 -> 2025-01-01 00:00:00
        2024-01-01 10:00 AM -> 2024-01-01 10:00:00
        2024-01-01 0:00:00 BC -> 2024-01-01 00:00:00 BC
        0001-12-31 23:59:59.999999 BC -> 0001-12-31 23:59:59.999999 BC
        9999-12-31 23:59:59.9999996 -> 10000-01-01 00:00:00
        294276-12-31 -> !
        2024-01-01 10:00:00 PST -> 2024-01-01 10:00:00
        2024-01-01 10:00 foo -> !
        epoch -> 1970-01-01 00:00:00
        2024-01-01,10:00 -> 2024-01-01 10:00:00
        10:00 Jan 5 2024 -> 2024-01-05 10:00:00
        10:00 2024-01-05 -> !
    """,
    "timestamptz": """
        2024-01-01 10:00 -> 2024-01-01 10:00:00+00:00
        2024-01-01 10:00Z -> 2024-01-01 10:00:00+00:00
        2024-01-01 10:00+02 -> 2024-01-01 08:00:00+00:00
        2024-01-01 10:00 +05:30 -> 2024-01-01 04:30:00+00:00
        2024-01-01 10:00-0330 -> 2024-01-01 13:30:00+00:00
        2024-01-01 10:00 UTC+3 -> 2024-01-01 13:00:00+00:00
        2024-01-01 10:00 PST -> 2024-01-01 18:00:00+00:00
        2024-07-01 10:00 Europe/Paris -> 2024-07-01 08:00:00+00:00
        2024-01-01 10:00 europe/paris -> 2024-01-01 09:00:00+00:00
        2024-03-31 02:30 Europe/Paris -> 2024-03-31 01:30:00+00:00
        2024-10-27 02:30 Europe/Paris -> 2024-10-27 01:30:00+00:00
        1890-01-01 00:00 Europe/Paris -> 1889-12-31 23:50:39+00:00
        3024-07-01 00:00 Europe/Paris -> 3024-06-30 22:00:00+00:00
        2024-01-01 10:00+16 -> !
        2024-01-01 10:00 BC+01 -> 2024-01-01 09:00:00+00:00 BC
        0044-03-15 10:00+01 BC -> 0044-03-15 09:00:00+00:00 BC
    """,
    "interval": """
        1 day 02:03:04 -> 1 day 02:03:04
        1-2 -> 1 year 2 mons
        -1-2 -> -1 years -2 mons
        P1Y2M3DT4H -> 1 year 2 mons 3 days 04:00:00
        P0001-02-03T04:05:06 -> 1 year 2 mons 3 days 04:05:06
        PT0.5S -> 00:00:00.5
        1.5 months -> 1 mon 15 days
        1.5 years -> 1 year 6 mons
        1.5 days -> 1 day 12:00:00
        1.5 weeks -> 10 days 12:00:00
        1 day ago -> -1 days
        -1 day -> -1 days
        -1 day 2 hours -> -1 days +02:00:00
        1 day -00:00:01 -> 1 day -00:00:01
        2 weeks -> 14 days
        1 -> 00:00:01
        1.5 -> 00:00:01.5
        -1.5 -> -00:00:01.5
        1 2:03 -> 1 day 02:03:00
        @ 1 hour 5 min ago -> -01:05:00
        1 year 2 mons 3 days 04:05:06.5 -> 1 year 2 mons 3 days 04:05:06.5
        0.000001 s -> 00:00:00.000001
        0.0000005 s -> 00:00:00
        1 century -> 100 years
        12:30.5 -> 00:12:30.5
        1:60 -> !
        100:00:00 -> 100:00:00
        2147483648 days -> !
        178956971 years -> !
        9223372036854775807 us -> 2562047788:00:54.775807
        1 day 1 day -> !
        1d2h -> 1 day 02:00:00
        1 foo -> !
         -> !
        23:59:60 -> 24:00:00
        1e3 days -> !
        -.5 day -> !
    """,
}
CALLS = r"""
    timestamp '2024-01-31 10:00' + interval '1 month'
    -> [2024-02-29 10:00:00]
    timestamp '2023-01-31' + interval '1 month'
    -> [2023-02-28 00:00:00]
    timestamp '2024-03-31' - interval '1 month'
    -> [2024-02-29 00:00:00]
    timestamp '2024-02-29' + interval '1 year'
    -> [2025-02-28 00:00:00]
    timestamp '2024-02-29 12:00' - interval '4 years 1 day 13 hours'
    -> [2020-02-27 23:00:00]
    timestamp '0001-01-01' - interval '1 microsecond'
    -> [0001-12-31 23:59:59.999999 BC]
    timestamp '0001-03-31 BC' - interval '1 month'
    -> [0001-02-29 00:00:00 BC]
    timestamp '4714-11-24 BC' - interval '1 microsecond'
    -> !
    timestamp '4714-11-24 BC' + interval '-1 day 48:00'
    -> !
    timestamp '9999-12-31 23:59:59.999999' + interval '1 microsecond'
    -> [10000-01-01 00:00:00]
    timestamp '9999-12-31' + interval '1 mon -1 day'
    -> [10000-01-30 00:00:00]
    timestamptz '2024-03-31 00:30+00' + interval '1 day'
    -> [2024-04-01 00:30:00+00:00]
    interval '1 day' + timestamptz '2024-03-31 00:30+00'
    -> [2024-04-01 00:30:00+00:00]
    timestamptz '2024-03-31 00:30+00' - interval '-1 mon'
    -> [2024-04-30 00:30:00+00:00]
    date '2024-01-31' + interval '1 month'
    -> [2024-02-29 00:00:00]
    interval '1 month' + date '2024-01-31'
    -> [2024-02-29 00:00:00]
    date '2024-03-01' - interval '1 day'
    -> [2024-02-29 00:00:00]
    date '2024-03-01' - interval '00:00:00.000001'
    -> [2024-02-29 23:59:59.999999]
    time '23:30' + interval '1 day 01:00'
    -> [00:30:00]
    time '00:30' - interval '01:00'
    -> [23:30:00]
    time '10:00' - interval '1 mon'
    -> [10:00:00]
    interval '-25:00' + time '00:00'
    -> [23:00:00]
    date '2024-02-28' + int '2'
    -> [2024-03-01]
    date '2024-03-01' - int '1'
    -> [2024-02-29]
    int '-1' + date '0001-01-01'
    -> [0001-12-31 BC]
    date '2024-03-01' + int '2147483647'
    -> !
    date '4714-11-24 BC' - int '1'
    -> !
    date '2024-01-01' + time '10:11:12.5'
    -> [2024-01-01 10:11:12.5]
    time '10:11:12.5' + date '2024-01-01'
    -> [2024-01-01 10:11:12.5]
    timestamp '2024-03-01 01:00' - timestamp '2024-02-28 02:00:00.5'
    -> [1 day 22:59:59.5]
    timestamp '2024-02-28 02:00' - timestamp '2024-03-01 01:00'
    -> [-1 days -23:00:00]
    timestamptz '2024-03-01 01:00+00' - timestamptz '2023-03-01 01:00+00'
    -> [366 days]
    timestamp '0001-01-01' - timestamp '0001-01-01 BC'
    -> [366 days]
    date '2024-03-01' - date '2024-02-01'
    -> [29]
    date '0001-01-01' - date '0001-01-01 BC'
    -> [366]
    time '10:00' - time '12:30:00.5'
    -> [-02:30:00.5]
    interval '1 mon' + interval '-2 days 03:00'
    -> [1 mon -2 days +03:00:00]
    interval '1 mon' - interval '1 year'
    -> [-11 mons]
    interval '2147483647 days' + interval '1 day'
    -> !
    interval '-2147483648 days' - interval '1 day'
    -> !
    interval '9223372036854775807 us' + interval '1 us'
    -> !
    interval '1 mon' * float8 '0.5'
    -> [15 days]
    interval '1 mon 1 day 01:00' * float8 '1.1'
    -> [1 mon 4 days 03:30:00]
    interval '1 day' * float8 '-0.3333333333'
    -> [-07:59:59.999997]
    float8 '6.1' * interval '1 second'
    -> [00:00:06.1]
    interval '1 day' * float8 'NaN'
    -> !
    interval '2147483647 mons' * float8 '2'
    -> !
    interval '12 days' / float8 '4.2'
    -> [2 days 20:34:17.142857]
    interval '14000' / float8 '14'
    -> [00:16:40]
    interval '1 mon' / float8 '-7'
    -> [-4 days -06:51:25.6896]
    interval '1 day' / float8 '0'
    -> !
    - interval '1 mon -2 days 03:00:00.5'
    -> [-1 mons +2 days -03:00:00.5]
    - interval '-2147483648 days'
    -> !
    interval '1 mon' = interval '30 days'
    -> [true]
    interval '1 day' = interval '24:00'
    -> [true]
    interval '1 mon' < interval '31 days'
    -> [true]
    interval '1 mon -1 day' > interval '29 days'
    -> [false]
    interval '2147483647 mons' >= interval '-2147483648 mons'
    -> [true]
    interval '1 year' <= interval '360 days'
    -> [true]
    interval '1 year' <> interval '365 days'
    -> [true]
    justify_hours(interval '27 hours')
    -> [1 day 03:00:00]
    justify_hours(interval '1 day -25 hours')
    -> [-01:00:00]
    justify_days(interval '35 days')
    -> [1 mon 5 days]
    justify_days(interval '-1 mon 35 days')
    -> [5 days]
    justify_interval(interval '1 mon -1 hour')
    -> [29 days 23:00:00]
    justify_interval(interval '-29 days -30 hours')
    -> [-1 mons -06:00:00]
    make_interval(int '1', int '14', int '2', int '3', int '4', int '5', float8 '6.5')
    -> [2 years 2 mons 17 days 04:05:06.5]
    make_interval(int '0', int '12')
    -> [1 year]
    make_interval(int '-1')
    -> [-1 years]
    date_trunc(text 'microseconds', timestamp '2024-02-29 10:11:12.345678')
    -> [2024-02-29 10:11:12.345678]
    date_trunc(text 'milliseconds', timestamp '1969-12-31 23:59:59.999999')
    -> [1969-12-31 23:59:59.999]
    date_trunc(text 'second', timestamp '0044-03-15 10:11:12.9 BC')
    -> [0044-03-15 10:11:12 BC]
    date_trunc(text 'hour', timestamp '1969-12-31 23:59:59.5')
    -> [1969-12-31 23:00:00]
    date_trunc(text 'day', timestamp '0001-01-01 10:00 BC')
    -> [0001-01-01 00:00:00 BC]
    date_trunc(text 'week', timestamp '2021-01-03')
    -> [2020-12-28 00:00:00]
    date_trunc(text 'week', timestamp '0001-01-01 BC')
    -> [0002-12-27 00:00:00 BC]
    date_trunc(text 'month', timestamp '2024-02-29 10:00')
    -> [2024-02-01 00:00:00]
    date_trunc(text 'quarter', timestamp '2024-06-30')
    -> [2024-04-01 00:00:00]
    date_trunc(text 'year', timestamp '9999-12-31')
    -> [9999-01-01 00:00:00]
    date_trunc(text 'decade', timestamp '2019-12-31')
    -> [2010-01-01 00:00:00]
    date_trunc(text 'decade', timestamp '0001-06-01 BC')
    -> [0001-01-01 00:00:00 BC]
    date_trunc(text 'century', timestamp '2000-12-31')
    -> [1901-01-01 00:00:00]
    date_trunc(text 'century', timestamp '0001-06-01 BC')
    -> [0100-01-01 00:00:00 BC]
    date_trunc(text 'millennium', timestamp '2000-12-31')
    -> [1001-01-01 00:00:00]
    date_trunc(text 'millennium', timestamp '4000-12-31 BC')
    -> [4000-01-01 00:00:00 BC]
    date_trunc(text 'millennium', timestamp '4600-12-31 BC')
    -> !
    date_trunc(text 'MONTHS', timestamp '2024-02-29 10:00')
    -> [2024-02-01 00:00:00]
    date_trunc(text 'fortnight', timestamp '2024-02-29 10:00')
    -> !
    date_trunc(text 'day', timestamptz '2024-03-31 10:00+00', text 'Europe/Paris')
    -> [2024-03-30 23:00:00+00:00]
    date_trunc(text 'day', timestamptz '2024-10-27 23:30+00', text 'Europe/Paris')
    -> [2024-10-27 23:00:00+00:00]
    date_trunc(text 'hour', timestamptz '2024-10-27 00:30+00', text 'Australia/Lord_Howe')
    -> [2024-10-27 00:00:00+00:00]
    date_trunc(text 'month', timestamptz '2024-03-31 22:00+00', text 'nowhere')
    -> !
    date_trunc(text 'month', interval '2333 years 4 mons 5 days 02:47:33.123')
    -> [2333 years 4 mons]
    date_trunc(text 'quarter', interval '-2 years -5 mons')
    -> [-2 years -3 mons]
    date_trunc(text 'century', interval '-199 years')
    -> [-100 years]
    date_trunc(text 'hour', interval '-01:59:59')
    -> [-01:00:00]
    date_trunc(text 'week', interval '3 days')
    -> !
    date_part(text 'second', timestamp '2024-01-01 10:11:12.345678')
    -> [12.345678]
    date_part(text 'milliseconds', time '10:11:12.345678')
    -> [12345.678]
    date_part(text 'microseconds', interval '-00:00:12.345678')
    -> [-12345678]
    date_part(text 'epoch', timestamp '1969-12-31 23:59:59.5')
    -> [-0.5]
    date_part(text 'epoch', interval '1 year 1 mon 1 day 00:00:01.5')
    -> [34236001.5]
    date_part(text 'hour', date '2024-01-01')
    -> [0]
    date_part(text 'year', date '0044-03-15 BC')
    -> [-44]
    date_part(text 'century', date '0001-01-01 BC')
    -> [-1]
    date_part(text 'century', date '2000-12-31')
    -> [20]
    date_part(text 'millennium', date '2001-01-01')
    -> [3]
    date_part(text 'decade', date '0011-01-01 BC')
    -> [-1]
    date_part(text 'isoyear', date '2021-01-03')
    -> [2020]
    date_part(text 'week', date '2021-01-03')
    -> [53]
    date_part(text 'dow', timestamp '2024-01-07')
    -> [0]
    date_part(text 'isodow', timestamp '2024-01-07')
    -> [7]
    date_part(text 'doy', timestamp '2024-12-31')
    -> [366]
    date_part(text 'quarter', interval '-4 mons')
    -> [0]
    date_part(text 'julian', timestamp '2024-01-01 18:00')
    -> [2460311.75]
    date_part(text 'timezone', timestamptz '2024-01-01 10:00+02')
    -> [0]
    date_part(text 'timezone', timestamp '2024-01-01 10:00')
    -> !
    date_part(text 'day', time '10:00')
    -> !
    date_part(text 'week', interval '8 days')
    -> !
    extract(text 'second', timestamp '2024-01-01 10:11:12.5')
    -> [12.500000]
    extract(text 'milliseconds', timestamp '2024-01-01 10:11:12.5')
    -> [12500.000]
    extract(text 'microseconds', timestamp '2024-01-01 10:11:12.5')
    -> [12500000]
    extract(text 'epoch', timestamp '1969-12-31 23:59:59.5')
    -> [-0.500000]
    extract(text 'epoch', date '0001-01-01')
    -> [-62135596800]
    extract(text 'epoch', interval '178000000 years')
    -> [5617252800000000.000000]
    extract(text 'epoch', time '10:00')
    -> [36000.000000]
    extract(text 'minute', interval '-01:59:59')
    -> [-59]
    extract(text 'month', interval '-14 mons')
    -> [-2]
    extract(text 'year', timestamptz '9999-12-31 23:59:59+00')
    -> [9999]
    extract(text 'isoyear', date '0001-01-01 BC')
    -> [-2]
    extract(text 'julian', date '2024-01-01')
    -> [2460311]
    age(timestamp '2024-03-31', timestamp '2024-02-29')
    -> [1 mon 2 days]
    age(timestamp '2024-02-29', timestamp '2024-03-31')
    -> [-1 mons -2 days]
    age(timestamp '2001-04-10', timestamp '1957-06-13')
    -> [43 years 9 mons 27 days]
    age(timestamp '2024-03-01 00:00', timestamp '2024-01-31 00:00:00.5')
    -> [1 mon 23:59:59.5]
    age(timestamptz '0001-01-01+00', timestamptz '0001-12-31+00 BC')
    -> [1 day]
    date_bin(interval '15 minutes', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01 00:02:30')
    -> [2020-02-11 15:32:30]
    date_bin(interval '1 day', timestamp '1999-12-31 12:00', timestamp '2001-01-01 06:00')
    -> [1999-12-31 06:00:00]
    date_bin(interval '1 mon', timestamp '2020-02-11', timestamp '2001-01-01')
    -> !
    date_bin(interval '-1 day', timestamp '2020-02-11', timestamp '2001-01-01')
    -> !
    date_bin(interval '0', timestamp '2020-02-11', timestamp '2001-01-01')
    -> !
    timezone(text 'us/pacific', timestamp '2022-03-13 02:00')
    -> [2022-03-13 10:00:00+00:00]
    timezone(text 'us/pacific', timestamp '2022-11-06 01:00')
    -> [2022-11-06 09:00:00+00:00]
    timezone(text 'US/Pacific', timestamptz '2022-01-01 00:00+00')
    -> [2021-12-31 16:00:00]
    timezone(text '+02:00', timestamptz '2022-01-01 00:00+00')
    -> [2021-12-31 22:00:00]
    timezone(text 'EST', timestamptz '2022-07-01 00:00+00')
    -> [2022-06-30 19:00:00]
    timezone(text 'Europe/Paris', timestamptz '3000-07-01 00:00+00')
    -> [3000-07-01 02:00:00]
    timezone(text 'Europe/Paris', timestamptz '0044-03-15 00:00+00 BC')
    -> [0044-03-15 00:09:21 BC]
    timezone(text 'nowhere', timestamptz '2022-07-01 00:00+00')
    -> !
    timezone(interval '-08:00', timestamp '2022-07-01 00:00')
    -> [2022-07-01 08:00:00+00:00]
    timezone(interval '-08:00', timestamptz '2022-07-01 00:00+00')
    -> [2022-06-30 16:00:00]
    timezone(interval '1 day', timestamp '2022-07-01 00:00')
    -> !
    make_date(int '2024', int '2', int '29')
    -> [2024-02-29]
    make_date(int '2023', int '2', int '29')
    -> !
    make_date(int '-44', int '3', int '15')
    -> [0044-03-15 BC]
    make_date(int '0', int '1', int '1')
    -> !
    make_time(int '8', int '15', float8 '23.5')
    -> [08:15:23.5]
    make_time(int '24', int '0', float8 '1')
    -> !
    make_time(int '8', int '15', float8 'NaN')
    -> !
    make_timestamp(int '2013', int '7', int '15', int '8', int '15', float8 '23.5')
    -> [2013-07-15 08:15:23.5]
    make_timestamp(int '2013', int '7', int '15', int '24', int '0', float8 '0')
    -> [2013-07-16 00:00:00]
    make_timestamptz(int '2013', int '7', int '15', int '8', int '15', float8 '23.5')
    -> [2013-07-15 08:15:23.5+00:00]
    make_timestamptz(int '2013', int '7', int '15', int '8', int '15', float8 '23.5', text 'Europe/Paris')
    -> [2013-07-15 06:15:23.5+00:00]
    make_timestamptz(int '2013', int '7', int '15', int '8', int '15', float8 '23.5', text '+2')
    -> [2013-07-15 06:15:23.5+00:00]
    to_timestamp(float8 '1262349296.7890123')
    -> [2010-01-01 12:34:56.789012+00:00]
    to_timestamp(float8 '-62135596800.5')
    -> [0001-12-31 23:59:59.5+00:00 BC]
    to_timestamp(float8 'NaN')
    -> !
    to_timestamp(float8 '1e15')
    -> !
    to_timestamp(text '2022 12 25', text 'YYYY MM DD')
    -> [2022-12-25 00:00:00+00:00]
    to_timestamp(text '2022-12-25 00:00:00.900006', text 'YYYY-MM-DD HH24:MI:SS.US')
    -> [2022-12-25 00:00:00.900006+00:00]
    to_timestamp(text '2023-07-11 20:01:00-07:00', text 'YYYY-MM-DD HH24:MI:SSTZH:TZM')
    -> [2023-07-12 03:01:00+00:00]
    to_timestamp(text '12/25/22 01:02 PM', text 'MM/DD/YY HH12:MI AM')
    -> [2022-12-25 13:02:00+00:00]
    to_timestamp(text '13:02 PM', text 'HH12:MI AM')
    -> !
    to_timestamp(text '20221225', text 'YYYYMMDD')
    -> [2022-12-25 00:00:00+00:00]
    to_timestamp(text '2022-13-25', text 'YYYY-MM-DD')
    -> !
    to_timestamp(text '2022', text 'TZ')
    -> !
    to_date(text '05 Dec 2000', text 'DD Mon YYYY')
    -> [2000-12-05]
    to_date(text '-2022-12-25', text 'YYYY-MM-DD')
    -> [2022-12-25 BC]
    to_date(text '2022-2-5', text 'YYYY-MM-DD')
    -> [2022-02-05]
    to_date(text '2022-366', text 'YYYY-DDD')
    -> !
    to_date(text '2024-366', text 'YYYY-DDD')
    -> [2024-12-31]
    to_date(text '2006-42-4', text 'IYYY-IW-ID')
    -> [2006-10-19]
    to_date(text '95-12-25', text 'YY-MM-DD')
    -> [1995-12-25]
    to_date(text '2022-02-30', text 'YYYY-MM-DD')
    -> !
    to_date(text '2459938', text 'J')
    -> [2022-12-24]
    to_date(text '0044-03-15 BC', text 'YYYY-MM-DD BC')
    -> [0044-03-15 BC]
    to_date(text 'x', text 'YYYY')
    -> !
    to_date(text '2024 06', text 'IYYY MM')
    -> !
    to_char(timestamp '2002-04-20 17:31:12.66', text 'HH12:MI:SS')
    -> [05:31:12]
    to_char(timestamp '2006-01-02 15:04:05.003', text 'yyyy-mm-dd hh24:mi:ss.ms.us')
    -> [2006-01-02 15:04:05.003.003000]
    to_char(timestamp '2024-05-01', text 'Day DY Dy dy|DAY|Month|MON|Mon|FMMonth|FMDay')
    -> [Wednesday WED Wed wed|WEDNESDAY|May      |MAY|May|May|Wednesday]
    to_char(timestamp '0044-03-15 BC', text 'YYYY YY Y Y,YYY BC ad A.D. CC')
    -> [0044 44 4 0,044 BC bc B.C. -01]
    to_char(timestamp '12345-01-01', text 'YYYY-MM-DD IYYY-IW-ID IDDD J Q W WW DDD D')
    -> [12345-01-01 12345-01-1 001 6229979 1 1 01 001 2]
    to_char(timestamp '2024-01-01', text 'DDth FMDDTH FMMMth HH24TH')
    -> [01st 1ST 1st 00TH]
    to_char(timestamp '2024-01-11 00:05', text 'FMDDth FMHH12:FMMI am P.M. SSSS')
    -> [11th 12:5 am A.M. 300]
    to_char(timestamp '2024-01-01', text '"YYYY" YYYY "a\"b" \"YYYY\"')
    -> [YYYY 2024 a"b "2024"]
    to_char(timestamp '2024-12-31 23:59:59.999999', text 'FF1 FF2 FF3 FF4 FF5 FF6 RM rm')
    -> [9 99 999 9999 99999 999999 XII  xii ]
    to_char(timestamp '2024-01-01', text '')
    -> [NULL]
    to_char(timestamp '2024-01-01', text 'TZ')
    -> []
    to_char(timestamptz '2024-01-01 10:00+00', text 'HH24 TZ tz OF TZH:TZM')
    -> [10 UTC utc +00 +00:00]
    to_char(interval '1 year 2 month 3 day 4 hour 5 minute 6 second', text 'YYYY MM DD PM HH12 HH24 MI SS MS US')
    -> [0001 02 03 AM 04 04 05 06 000 000000]
    to_char(interval '-23:22:57.124562', text 'HH12 MI SS MS US')
    -> [-11 -22 -57 -124 -124562]
    to_char(interval '-20459y -256 days -120 hours 866 seconds', text 'YYYY IYYY YY IY MM DD PM pm HH HH12 HH24 MI SS')
    -> [-20459 -20460 -59 -60 00 -256 AM am -11 -11 -119 -45 -34]
    to_char(interval '1 day', text 'Mon')
    -> !
"""
_SIGNS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "=": "eq", "<>": "ne", "<": "lt", "<=": "le", ">": "gt",
          ">=": "ge"}  # fmt: skip
_VALUE = r"(?P<{0}>[a-z0-9]+) '(?P<{0}_text>[^']*)'"
_BINARY = re.compile(rf"{_VALUE.format('a')} (?P<sign>\S+) {_VALUE.format('b')}")
_ARG = re.compile(r"([a-z0-9]+) '([^']*)'")


def _series(name: str, text: str) -> pl.Series:
    given = pl.Series([text, None], dtype=pl.String)
    t = TYPES[name]
    if t is S.VARCHAR:
        return given
    return moments(given, t) if name not in ("int", "float8") else given.cast(polars_type(t))


def _shown(s: pl.Series, t: Type) -> list[str]:
    times = isinstance(t, Scalar) and t in (*TYPES.values(),) and t not in (S.INT, S.DOUBLE, S.VARCHAR)
    values = (texts(s, t) if times and isinstance(t, Scalar) else s).to_list()
    return ["NULL" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in values]


def _parsed(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The row, and types and texts of its arguments."""
    if m := _BINARY.fullmatch(text):
        types = TYPES[m["a"]], TYPES[m["b"]]
        found = operator(_SIGNS[m["sign"]], *types)
        assert found is not None
        return found[0], [(m["a"], m["a_text"]), (m["b"], m["b_text"])]
    if text.startswith("- "):
        return "pg.neg_interval", _ARG.findall(text)
    return f"pg.{text.split('(', maxsplit=1)[0]}", _ARG.findall(text)


def _lines(table: str) -> list[str]:
    return [line.strip(" ") for line in table.strip("\n").split("\n") if line.strip()]


_CALLS = [(a, b.removeprefix("-> ")) for a, b in zip(_lines(CALLS)[::2], _lines(CALLS)[1::2], strict=True)]


@pytest.mark.parametrize("constants", [False, True], ids=["columns", "constants"])
@pytest.mark.parametrize(("text", "expected"), _CALLS, ids=[text for text, _ in _CALLS])
def test_calls(text: str, expected: str, constants: bool) -> None:
    name, args = _parsed(text)
    frame = pl.DataFrame([_series(*a).alias(str(i)) for i, a in enumerate(args)])
    exprs: list[Expr] = [
        Lit(value, S.VARCHAR) if kind == "text" and (constants or name == "pg.extract") else Col(str(i), TYPES[kind])
        for i, (kind, value) in enumerate(args)
    ]
    if isinstance(FUNCTIONS[name].resolve(exprs), Refused):  # a constant that no row can have is refused before any
        assert expected == "!" and constants
        return
    call = typing.call(name, exprs)
    out, failed = evaluate(frame, [("v", call)])
    shown = _shown(out["v"], call.type)
    if expected == "!":
        assert failed.to_list()[0], shown[0]
        assert shown[0] == "NULL"
    else:
        assert not failed.to_list()[0]
        assert _same(shown[0], expected[1:-1], call.type)
    if any(isinstance(e, Col) for e in exprs):
        assert (shown[1], failed.to_list()[1]) == ("NULL", False)
    why = why_of(name)
    if expected == "!" and callable(why):
        assert why(*frame.row(0)) if name.startswith("pg.make") else why


def test_every_row_has_a_call() -> None:
    rows = {*INTERVALS, *TIMES, *READERS, TO_CHAR.name}
    assert rows == {_parsed(text)[0] for text, _ in _CALLS}


def test_every_operator_has_a_row_that_takes_its_types() -> None:
    for (_, *types), (name, result) in TIME_OPERATORS.items():
        found = INTERVALS[name].resolve([Col(str(i), t) for i, t in enumerate(types) if not isinstance(t, str)])
        assert not isinstance(found, Refused), (types, name)
        assert found.result == result


def _same(shown: str, expected: str, t: Type) -> bool:
    return math.isclose(float(shown), float(expected), rel_tol=0) if t is S.DOUBLE else shown == expected


@pytest.mark.parametrize("name", READ)
def test_reads(name: str) -> None:
    pairs = [
        line.rsplit(" -> ", 1) if " -> " in line else ("", line.removeprefix("-> ")) for line in _lines(READ[name])
    ]
    given = pl.DataFrame({"x": pl.Series([a for a, _ in pairs] + [None], dtype=pl.String)})
    out = given.select(to_moment(pl.col("x"), TYPES[name]))["x"]
    shown = _shown(out, TYPES[name])
    wrong = [(a, b, s) for (a, b), s in zip(pairs, shown, strict=False) if s != ("NULL" if b == "!" else b)]
    assert wrong == []
    assert shown[-1] == "NULL"


def test_plain_forms_are_read_as_the_others() -> None:
    """Columnar, and one by one."""
    plain = ["2024-01-05 10:11:12", "2024-01-05T10:11:12.5", "0000-01-05 10:11:12", "2023-02-29 00:00:00"]
    slow = [f" {text}" for text in plain]
    for t in (S.TIMESTAMP, S.TIMESTAMPTZ):
        assert moments(pl.Series(plain), t).to_list() == moments(pl.Series(slow), t).to_list()
    dates = ["2024-02-29", "2023-02-29", "0000-01-01", "9999-12-31"]
    assert moments(pl.Series(dates), S.DATE).to_list() == moments(pl.Series([f" {d}" for d in dates]), S.DATE).to_list()


def test_the_calendar_of_arrays_is_that_of_numbers() -> None:
    days = pl.Series([FIRST_DAY, -719_163, -719_162, -1, 0, 11_016, 19_782, 2_932_896, 2_932_897, LAST_DAY])
    years, months, of_month = civil_of(days.to_numpy())
    for i, day in enumerate(days.to_list()):
        assert civil(day) == (years[i], months[i], of_month[i])
        assert day_number(*civil(day)) == day
    assert days_of(years, months, of_month).tolist() == days.to_list()


@pytest.mark.parametrize(("source", "target"), sorted(CASTS, key=str), ids=str)
def test_casts_among_times(source: Scalar, target: Scalar) -> None:
    at = -45 * DAY // 2 + 1
    given: dict[Scalar, object] = {S.DATE: -5, S.TIME: 5, S.INTERVAL: (1, 2, -1)}
    frame = pl.DataFrame({"x": column([given.get(source, at), None], source)})
    out = frame.select(v=converted(pl.col("x"), source, target))["v"]
    expected: object = {S.DATE: -23, S.TIME: DAY // 2 + 1, S.INTERVAL: (0, 0, 5)}.get(target, at)
    if source is S.DATE:
        expected = -5 * DAY
    if source is S.INTERVAL:
        expected = DAY - 1
    assert out.dtype == polars_type(target)
    assert out.to_list() == column([expected, None], target).to_list()


def test_fields_that_extract_has_not_are_refused() -> None:
    extract = FUNCTIONS["pg.extract"].resolve
    for field, t in (("hour", S.DATE), ("day", S.TIME), ("week", S.INTERVAL), ("timezone", S.TIMESTAMP), ("x", S.DATE)):
        assert isinstance(extract([Lit(field, S.VARCHAR), Col("x", t)]), Refused)
    assert isinstance(extract([Col("f", S.VARCHAR), Col("x", S.DATE)]), Refused)


def test_the_digits_of_extract() -> None:
    for field, scale in (("second", 6), ("milliseconds", 3), ("epoch", 6), ("year", 0), ("julian", 20)):
        t = typing.call("pg.extract", [Lit(field, S.VARCHAR), Col("x", S.TIMESTAMP)]).type
        assert isinstance(t, Decimal)
        assert t.scale == scale


def test_a_date_is_a_moment_of_the_session() -> None:
    """PostgreSQL prefers TIMESTAMPTZ for what takes both."""
    found = FUNCTIONS["pg.date_trunc"].resolve([Lit("day", S.VARCHAR), Col("x", S.DATE)])
    assert not isinstance(found, Refused)
    assert found.result is S.TIMESTAMPTZ
    assert isinstance(takes("x", ((S.TIMESTAMP,), S.DATE))([Col("x", S.VARCHAR)]), Refused)


def test_an_interval_as_a_literal() -> None:
    frame = pl.DataFrame({"x": column([0, None], S.TIMESTAMP)})
    moved = typing.call("pg.add_interval", [Col("x", S.TIMESTAMP), Lit((1, 2, 3), S.INTERVAL)])
    out, failed = evaluate(frame, [("v", moved), ("c", Lit((0, -1, 0), S.INTERVAL))])
    assert _shown(out["v"], S.TIMESTAMP) == ["1970-02-03 00:00:00.000003", "NULL"]
    assert _shown(out["c"], S.INTERVAL) == ["-1 days", "-1 days"]
    assert failed.to_list() == [False, False]


def test_reasons() -> None:
    for name, args, reason in (
        ("make_date", (2023, 2, 29), "date field value out of range: 2023-02-29"),
        ("date_trunc", ("fortnight", None), 'unit "fortnight" not recognized for type timestamp with time zone'),
        ("date_part", ("day", dt.time(1)), 'unit "day" not supported for type time without time zone'),
        ("date_part", ("week", {"months": 1}), 'unit "week" not supported for type interval'),
        (
            "date_trunc",
            ("dow", dt.datetime(2024, 1, 1)),
            'unit "dow" not supported for type timestamp without time zone',
        ),
        ("timezone", ("nowhere", None), 'time zone "nowhere" not recognized'),
        ("timezone", ({"months": 1}, None), "timestamp out of range"),
        ("date_bin", ({"months": 1}, 0, 0), "timestamps cannot be binned into intervals containing months or years"),
        ("div_interval", (None, 0.0), "division by zero"),
        ("to_date", ("x", "YYYY"), 'invalid value "x" for "YYYY"'),
        ("to_timestamp", ("x", "YYYY"), 'invalid value "x" for "YYYY"'),
    ):
        why = why_of(f"pg.{name}")
        assert (why(*args) if callable(why) else why) == reason
