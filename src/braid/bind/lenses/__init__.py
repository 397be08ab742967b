"""Lenses SQL: what its statements mean.

In: statements as written. Out: what `plan.bound` lists.
Rule: key and value are the two facets of a record; everything that is Lenses' own about them ends here.
"""
