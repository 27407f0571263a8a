"""`python -m labkit` is `tinyllm`."""

from labkit.cli import main

main()
