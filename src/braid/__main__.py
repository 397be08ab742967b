"""`python -m braid` is `braid`."""

from braid.cli import main

main()
