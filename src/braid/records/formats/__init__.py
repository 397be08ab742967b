"""The formats of records: one file a format, or a family of them, and the list of all (`named.py`)."""
