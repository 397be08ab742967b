"""Errors that only the command line tells apart."""


class QueryDied(Exception):
    """A query failed while it ran; the message says why. Exit code 2."""


class TooManyDrops(Exception):
    """A run dropped more rows than `--max-drops` allows. Exit code 3."""
