"""Kinds of schemas that a registry holds: one file a kind, and the list of them (`named.py`)."""
