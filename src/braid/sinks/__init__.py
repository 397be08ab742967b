"""Where results go: one file a sink, and the list of those that `--sink` names (`named.py`)."""
