"""A reader who types what pages say: each block once, in page order, in processes of its own.

A reader has an empty folder, a broker that `headwater up` started there with its defaults, a shell
and a Python prompt. Ports are made free ones by replacing their text; nothing else is changed. A
block whose first line names a file (`# shop.py`, `-- shop/gold.sql`) is written to that file.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple

from tools.free_ports import free_port

ROOT = Path(__file__).parents[1]
PATIENCE_S = 240
_STOP_S = 60

NOT_RUN = {
    "make ": "this is make test; make run is tests/pipelines/test_behavior.py",
    "pip install": "the environment has the package",
    "headwater up --brokers": "tests/integration/test_cluster.py starts it",
    "headwater reassign": "there is one broker; tests/integration/test_moves.py moves among three",
    "headwater elect": "likewise; tests/unit/cli/test_live.py types it",
    "headwater up --config broker1": "each broker has a machine of its own there",
    "headwater demo failover": "tests/integration/test_cluster.py runs it and compares what it prints",
    "headwater log verify": "nothing is damaged; tests/unit/log/test_repair.py compares the output",
    "headwater log repair": "likewise",
    "headwater log compaction /var": "tests/unit/broker/test_cleaner.py compares the output",
    "headwater security check --config": "tests/unit/broker/test_weak_settings.py compares the output",
    "headwater users add": "it asks for a password; tests/clients/test_cli.py gives it one",
    "headwater --config alice": "there is no alice; tests/unit/cli/test_tokens.py types it for one",
    "headwater --config job": "likewise",
    "kafka-consumer-groups": "tests/compat runs Kafka's own tools; tests/pipelines/test_lag.py asks for this lag",
}
"""Commands on pages that are not run, and why."""
_CLUSTER = "--master spark:"
"""There is no Spark cluster for pages; tests/pipelines/test_cluster.py starts one."""
NOT_CODE = {
    "text": "a picture, a synopsis or a line of a log",
    "html": "tests/integration/test_collect_browser.py loads it in a browser",
    "properties": "a file of somebody else's program",
}
"""Languages of blocks that are not run, and why."""
_ENDLESS = re.compile(r"headwater (collect|pipeline run .*--continuous|consume .*--follow)")
_PORTS = ("9092", "8080", "9404")

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"(?:#|--|//) ([\w./-]+\.(?:py|sql|yml|json))\n")
_PROMPTED = re.compile(r"^\$ ", re.MULTILINE)
_SAID = re.compile(r"# -> (.*)$", re.MULTILINE)

_PROMPT = """
import json, sys, traceback
for line in sys.stdin:
    place, code, begins = json.loads(line)
    names = {"__name__": "__main__"} if begins else names
    try:
        exec(compile(code, place, "exec"), names)
        print("\\nblock: ok", flush=True)
    except BaseException:
        traceback.print_exc()
        print("\\nblock: failed", flush=True)
"""
_NUMBER = re.compile(r"\d[\d.,:]*(?<=\d)")
_END = re.compile(r"block: (ok|failed)\n")


class Block(NamedTuple):
    """A fenced block, and where it begins."""

    language: str
    code: str
    place: str


class Command(NamedTuple):
    """What is typed after a prompt, and what the page shows below it."""

    line: str
    shown: list[str]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = _BLOCK.finditer(text)
    return [Block(b[1], b[2], f"{page.name}:{text[: b.start(2)].count(chr(10))}") for b in found]


def commands(block: Block) -> list[Command]:
    """The commands of a block, of which one may go over several lines."""
    if block.language == "sh":
        joined = re.sub(r"\|\n\s*", "| ", re.sub(r"\\\n\s*", " ", block.code))
        return [Command(line, []) for line in joined.splitlines() if line.strip()]
    found: list[Command] = []
    for line in re.sub(r"\\\n\s*", " ", block.code).splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], []))
        elif line.strip():
            found[-1].shown.append(line)
    return found


class Reader:
    """Somebody with an empty folder, who stops at the first thing that is not as the page says."""

    def __init__(self, folder: Path, **settings: str) -> None:
        """`settings` are those of the broker, with `_` for each dot."""
        self.folder = folder
        self.settings = {key.replace("_", "."): value for key, value in settings.items()}
        self.ports = {port: str(free_port()) for port in _PORTS}
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "HEADWATER_BOOTSTRAP": f"127.0.0.1:{self.ports['9092']}",
        }
        self.endless: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.prompt: subprocess.Popen[str] | None = None
        self.ready = ""

    def __enter__(self) -> "Reader":
        settings = {"metrics.listener": f"127.0.0.1:{self.ports['9404']}", **self.settings}
        options = "".join(f" -o {key}={value}" for key, value in settings.items())
        up = f"headwater up --port {self.ports['9092']}{options}"
        output = self.start(up, [f"headwater is ready at {self.bootstrap} (data in ...)"])
        self.ready = output
        return self

    def __exit__(self, *error: object) -> None:
        if self.prompt is not None:
            self.prompt.kill() if error[0] else self.prompt.stdin.close()
            self.prompt.wait(_STOP_S)
            for pipe in (self.prompt.stdin, self.prompt.stdout):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        for line, process in reversed(self.endless):
            process.send_signal(signal.SIGINT)
            try:
                code = process.wait(_STOP_S)
            finally:
                process.kill()
            assert error[0] or code == 0, f"{line}: exit code {code} after Ctrl-C"

    @property
    def bootstrap(self) -> str:
        return self.environment["HEADWATER_BOOTSTRAP"]

    def read(self, page: Path) -> None:
        """Do what each block of a page says."""
        begins = True
        for block in blocks(page):
            code = block.code
            for told, ours in self.ports.items():
                code = code.replace(f":{told}", f":{ours}").replace(f"port {told}", f"port {ours}")
            mine = block._replace(code=code)
            if named := _FILE.match(mine.code):
                self.write(named[1], mine.code)
            elif mine.language in {"python", "diff"}:
                self.type_python(mine, begins)
                begins = False
            elif mine.language in {"sh", "console"}:
                for command in commands(mine):
                    self.type_shell(command, mine.place)
            else:
                assert mine.language in NOT_CODE, f"{mine.place}: neither run nor in NOT_CODE"
                assert not _PROMPTED.search(code), f"{mine.place}: make it a console block"

    def write(self, name: str, code: str) -> None:
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(code.partition("\n")[2] if name.endswith(".json") else code)

    def type_python(self, block: Block, begins: bool) -> None:
        """The blocks of a page share their names, as at one prompt."""
        code = block.code
        if block.language == "diff":
            code = "\n".join(line[1:] for line in code.splitlines() if not line.startswith("-"))
        if self.prompt is None:
            with (self.folder / ".stderr").open("w") as errors:
                self.prompt = subprocess.Popen(
                    [sys.executable, "-u", "-c", _PROMPT],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    cwd=self.folder,
                    env=self.environment,
                )
        print(json.dumps([block.place, code, begins]), file=self.prompt.stdin, flush=True)
        printed = self.listen()
        failed = not printed or "failed" in printed[-1]
        assert not failed, f"{block.place}\n{(self.folder / '.stderr').read_text()}"
        for said in _SAID.findall(code):
            assert said in printed, f"{block.place}: {said!r} is not in {printed}"

    def listen(self) -> list[str]:
        """The lines that the prompt prints for a block; without an end where it hangs or dies."""
        assert self.prompt is not None
        hangs = threading.Timer(PATIENCE_S, self.prompt.kill)
        hangs.start()
        printed: list[str] = []
        for line in self.prompt.stdout or ():
            printed.append(line.rstrip("\n"))
            if _END.match(line):
                hangs.cancel()
                return printed
        hangs.cancel()
        return []

    def type_shell(self, command: Command, place: str) -> None:
        line = command.line
        if line.startswith(tuple(NOT_RUN)) or _CLUSTER in line:
            return
        if line.startswith("headwater up"):  # it is running
            output = self.ready
        elif _ENDLESS.match(line) and "--once" not in line:
            output = self.start(line, command.shown or ["..."])
        else:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", line],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=self.folder,
                env=self.environment,
                timeout=PATIENCE_S,
                check=False,
            )
            output = done.stdout
            assert done.returncode == 0, f"{place}: {line}\n{output}"
        compare(output, command.shown, f"{place}: {line}")

    def start(self, line: str, awaited: list[str]) -> str:
        """Start what does not end by itself; what it printed up to the lines that are awaited."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            env=self.environment,
        )
        self.endless.append((line, process))
        hangs = threading.Timer(PATIENCE_S, process.kill)
        hangs.start()
        printed = ""
        for raw in process.stdout or ():
            printed += raw.decode()
            if not missing(printed, awaited):
                hangs.cancel()
                threading.Thread(target=drain, args=(process.stdout,)).start()
                return printed
        hangs.cancel()
        raise AssertionError(f"{line}: ended, and had not shown {awaited}\n{printed}")


def drain(stream: IO[bytes]) -> None:
    """Read on, so that a process which goes on printing does not wait for room."""
    with stream:
        for _ in stream:
            pass


def shown_below(page: str, line: str) -> list[str]:
    """What a page shows below a command in NOT_RUN, for the test that runs it elsewhere."""
    consoles = [block for block in blocks(ROOT / page) if block.language == "console"]
    (found,) = [one.shown for block in consoles for one in commands(block) if one.line == line]
    return found


def shapes(lines: Iterable[str]) -> list[str]:
    """Lines with every number as `#`: what pages and runs have in common."""
    return [_NUMBER.sub("#", _words(line)) for line in lines]


def compare(output: str, shown: list[str], where: str) -> None:
    """What the page shows must be in the output, in its order; `...` stands for anything."""
    lost = missing(output, shown)
    assert lost is None, f"{where}\nthe page shows: {lost}\nthe output is:\n{output}"


def missing(output: str, shown: list[str]) -> str | None:
    """The first line that is not in the output behind those before it."""
    lines = iter(output.splitlines())
    for wanted in shown:
        pattern = _pattern(wanted)
        if not any(pattern.fullmatch(_words(line)) for line in lines):
            return wanted
    return None


def _pattern(shown: str) -> re.Pattern[str]:
    return re.compile(re.escape(_words(shown)).replace(r"\.\.\.", ".*"))


def _words(line: str) -> str:
    return " ".join(line.split())
