"""The command `headwater`: one file per noun, imported when that noun is typed.

A broker starts through here, so nothing but click is imported before the command is known.
"""

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the console script; Ctrl-C during its imports prints no traceback."""
    try:
        import headwater.linux  # noqa: F401 - its refusal becomes one line here
    except ImportError as refused:
        sys.exit(f"Error: {refused}")
    try:
        from headwater.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    run()
