"""`python -m headwater` is the command `headwater`."""

from headwater.cli import main

main()
