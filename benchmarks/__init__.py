"""How fast, how steady, how big: Braid measured beside Spark's own joins. `make bench`, or `python -m benchmarks`.

In: sizes. Out: tables, on the terminal and in `docs/benchmarks.md`.
Rule: nothing here is a test of time. What is compared reads the same rows, writes to the same kind of sink and gives
the same number of rows, which is asserted on every run.
"""
