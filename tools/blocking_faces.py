"""Derives the blocking clients from the asyncio ones, so that there is one source.

python -m tools.blocking_faces            writes blocking.py beside each asyncio face
python -m tools.blocking_faces --check    exits with status 1 if one is out of date

It removes `async` and `await` and replaces the classes that wait (`AsyncPoller`, `AsyncSendWaits`,
`AsyncCaller`) by their blocking counterparts. A line `# blocking: CODE` of the source becomes CODE.
`SENTENCES` lists the prose that differs.
"""

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parent.parent / "src" / "headwater" / "client"
FACES = {
    CLIENT / "consumer" / "consumer.py": CLIENT / "consumer" / "blocking.py",
    CLIENT / "producer" / "producer.py": CLIENT / "producer" / "blocking.py",
    CLIENT / "admin" / "admin.py": CLIENT / "admin" / "blocking.py",
    CLIENT / "transforming" / "transform.py": CLIENT / "transforming" / "blocking.py",
}

SENTENCES = {
    "The asyncio face of the consumer; `tools/blocking_faces.py` derives the blocking one from it.": "The blocking face of the consumer.\n\nDerived from `consumer.py` by `python -m tools.blocking_faces`; do not edit.\n",
    "The asyncio face of the producer; `tools/blocking_faces.py` derives the blocking one from it.": "The blocking face of the producer.\n\nDerived from `producer.py` by `python -m tools.blocking_faces`; do not edit.\n",
    "The asyncio face of the admin; `tools/blocking_faces.py` derives the blocking one from it.": "The blocking face of the admin.\n\nDerived from `admin.py` by `python -m tools.blocking_faces`; do not edit.\n",
    "The asyncio face of `transform`; `tools/blocking_faces.py` derives the blocking one from it.": "The blocking face of `transform`.\n\nDerived from `transform.py` by `python -m tools.blocking_faces`; do not edit.\n",
    "a list of these, or None for nothing. It is awaited.": "a list of these, or None for nothing.",
    "Manages topics, configs, groups, transactions and brokers, on the event loop that it is first used on.": "Manages topics, configs, groups, transactions and brokers, from any thread.",
    "Reads records on the event loop that it is first used on.": "Reads records; for one thread at a time.",
    "One task at a time may use a consumer; only": "One thread at a time may use a consumer; only",
    "Sends records on the event loop that it is first used on.": "Sends records, from any number of threads.",
    "on the event loop; it must not block": "on the client's loop thread; it must not block",
    "on the event loop; it must\n                not block": "on the client's loop\n                thread; it must not block",
    "Gets a record and is awaited.": "Gets a record; runs in a worker thread.",
    "workers: How many run side by side.": "workers: How many threads.",
}
_WORDS = (
    (r"  # noqa: ASYNC109[^\n]*", ""),
    (r"# blocking: ", ""),
    (r"\bAsyncPoller\b", "BlockingPoller"),
    (r"\basync_poller\b", "blocking_poller"),
    (r"\bAsyncSendWaits\b", "BlockingSendWaits"),
    (r"\basync_send_waits\b", "blocking_send_waits"),
    (r"\bAsyncCaller\b", "BlockingCaller"),
    (r"\basync_caller\b", "blocking_caller"),
    (r"\bAsyncWaiter\b", "BlockingWaiter"),
    (r"\bAsyncWork\b", "Work"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\bAwaitable, ", ""),
    (r"\bawaited=True\b", "awaited=False"),
    (r"\bconsumer\.consumer import", "consumer.blocking import"),
    (r"\bproducer\.producer import", "producer.blocking import"),
    (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"for record in (self\.poll\(.*\)):\n +yield record", r"yield from \1"),
)


def blocking(source: str) -> str:
    """Return the blocking face of the source of an asyncio one."""
    for text, other in SENTENCES.items():
        source = source.replace(text, other)
    for pattern, other in _WORDS:
        source = re.sub(pattern, other, source)
    return _ruff(_ruff(source, "check", "--select", "I", "--fix", "--quiet"), "format")


def _ruff(source: str, *command: str) -> str:
    tool = Path(sys.executable).with_name("ruff")
    options = ["--stdin-filename", str(CLIENT / "face.py"), "-"]
    done = subprocess.run(
        [tool, *command, *options], input=source, capture_output=True, text=True, check=True
    )
    return done.stdout


def outdated() -> list[str]:
    """Return the blocking faces that are out of date."""
    return [
        str(target.relative_to(CLIENT))
        for source, target in FACES.items()
        if not target.exists() or target.read_text() != blocking(source.read_text())
    ]


def main() -> None:
    """Write the faces, or compare them."""
    if "--check" not in sys.argv[1:]:
        for source, target in FACES.items():
            target.write_text(blocking(source.read_text()))
    elif late := outdated():
        sys.exit(f"out of date: {', '.join(late)}; run python -m tools.blocking_faces")


if __name__ == "__main__":
    main()
