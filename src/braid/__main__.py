"""`python -m braid` is `braid`."""

from braid.face.cli import main

main()
