"""Runs the `openssl` command, which every system with TLS has; no package of Python is needed."""

import subprocess

from headwater.errors import E, KafkaError

TIMEOUT_S = 60


class OpensslError(KafkaError):
    """The command is missing, or it failed."""

    def __init__(self, message: str) -> None:
        super().__init__(E.INVALID_CONFIG, message)


def openssl(*arguments: str, secret: str | None = None) -> str:
    """Run `openssl` and return its output; `secret` goes to its standard input."""
    try:
        done = subprocess.run(
            ["openssl", *arguments],
            input=None if secret is None else secret + "\n",
            stdin=subprocess.DEVNULL if secret is None else None,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise OpensslError(
            "the command openssl is missing: install it (Debian: apt install openssl)"
        ) from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise OpensslError(f"openssl {arguments[0]} failed: {lines[-1]}")
    return done.stdout
