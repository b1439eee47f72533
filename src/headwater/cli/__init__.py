"""The command `headwater`: one file per noun, imported when that noun is typed.

A broker starts through here, so nothing but click is imported before the command is known.
"""

from headwater.cli.app import main as main
