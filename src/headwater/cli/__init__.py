"""The command `headwater`: one file per noun, imported when that noun is typed.

A broker starts through here, so nothing but click is imported before the command is known.
"""

import sys

_INTERRUPTED = 130


def main() -> None:
    """The entry point of the console script; Ctrl-C while it is being imported is a quiet end too."""
    try:
        from headwater.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    run()
