"""The command itself: its subcommands, its version, and its exit after an error or a signal."""

import json
import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import IO, Any, NoReturn

import click

from headwater import __version__
from headwater.cli import exit_at_once
from headwater.errors import KafkaError

COMMANDS = {
    "up": "Start a broker, or a cluster of several.",
    "security": "Create, check, renew and import certificates and secured settings.",
    "store": "Start a metadata store that speaks ZooKeeper's protocol.",
    "topics": "Create, list, describe, alter, trim and delete topics.",
    "produce": "Send records from lines, JSON or files.",
    "consume": "Print records.",
    "collect": "Write events from HTTP or from files to a topic.",
    "groups": "List, describe, delete and reset consumer groups.",
    "transactions": "List and describe transactions; find and abort those that hang.",
    "producers": "List the producers that the partitions of a topic remember.",
    "configs": "Describe, set and unset configs of topics, brokers and the cluster.",
    "users": "List, add and remove users that log in with SCRAM; set their passwords.",
    "tokens": "List, create, renew and expire delegation tokens.",
    "quotas": "List, set and remove quotas of users, client ids and addresses.",
    "acls": "List and change ACLs: who may do what.",
    "cluster": "Describe the cluster: its id, controller and brokers.",
    "brokers": "List and describe brokers.",
    "reassign": "Move partitions to other brokers and log dirs: plan, execute, verify, cancel.",
    "elect": "Elect the preferred leaders of partitions.",
    "pipeline": "Run pipelines on Spark: topics to tables and back, exactly once.",
    "demo": "Kill brokers of a cluster under load and see that nothing is lost.",
    "perf": "Measure the speed of producers and consumers on this machine.",
    "log": "Dump, verify and repair the files of a log.",
    "archive": "Copy sealed segments to a folder; audit and replay them.",
    "completion": "Print a script that completes commands, topics and groups in your shell.",
}
CONFIG_FILE = "config_file"
"""The parameter of `headwater` itself that names the config file."""
AS_JSON = "headwater.json"
"""Where the context of a command keeps whether --json was given."""
_EXTRAS = {
    "pyspark": "spark,lake",
    "pandas": "spark,lake",
    "pyarrow": "spark,lake",
    "yaml": "spark,lake",
    "deltalake": "lake",
    "pyiceberg": "lake",
    "starlette": "collect",
    "uvicorn": "collect",
}
"""The extra that brings a package which some commands import."""
_SCRIPTS = ("kafka-", "zookeeper-")
_terminated: list[int] = []
"""SIGTERM or SIGHUP, if one came; it interrupts a command as Ctrl-C does."""
_INTERRUPTED = 130


class OneLineError(click.ClickException):
    """An error as one line, or as one JSON object on standard error with --json."""

    def __init__(self, message: str, ctx: click.Context, *, code: str | None = None) -> None:
        from headwater.observe.logs import printable

        # A broker's answer may have any text in it.
        super().__init__(printable(" ".join(message.split()), limit=len(message)))
        self.code = code
        self.as_json = bool(ctx.meta.get(AS_JSON))

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the error to standard error."""
        if self.as_json:
            shown = {"error": self.message} | ({"code": self.code} if self.code else {})
            click.echo(json.dumps(shown, ensure_ascii=False), err=True)
        else:
            click.echo(f"Error: {self.message}", file=file, err=True)


class OneLineUsageError(OneLineError):
    """An invalid command line."""

    exit_code = 2


class LazyGroup(click.Group):
    """Commands that live in `headwater.cli.<name>` and are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; no other command is loaded."""
        if cmd_name.startswith(_SCRIPTS):
            command = import_module("headwater.cli.kafka_scripts").command_for(cmd_name)
        elif cmd_name in COMMANDS:
            command = import_module(f"headwater.cli.{cmd_name}").command
        else:
            return None
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command; an error becomes one line and exit code 2."""
        try:
            return super().parse_args(ctx, args)
        except click.exceptions.NoArgsIsHelpError:
            raise  # the bare command prints its help
        except click.UsageError as wrong:
            raise _usage(wrong, ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an error becomes one line, a signal the exit code that shells use."""
        try:
            _let_signals_interrupt()
            return super().invoke(ctx)
        except click.UsageError as wrong:
            raise _usage(wrong, ctx) from None
        except OneLineError:
            raise
        except click.ClickException as failed:
            raise OneLineError(failed.format_message(), ctx) from None
        except KafkaError as refused:
            raise OneLineError(refused.message, ctx, code=refused.code.name) from None
        except ModuleNotFoundError as missing:
            package = (missing.name or "").partition(".")[0]
            if package not in _EXTRAS:
                raise
            said = f"{package} is not installed: pip install 'headwater[{_EXTRAS[package]}]'"
            raise OneLineError(said, ctx) from None
        except BrokenPipeError as broken:
            raise _closed_pipe(ctx, broken) from None
        except OSError as problem:
            said = problem.strerror or str(problem)
            if problem.filename is None:
                said = _unwritable_stdout() or said
            else:
                said = f"{problem.filename}: {said}"
            raise OneLineError(said, ctx) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(
                128 + _terminated[0] if _terminated else _INTERRUPTED
            ) from None


def _usage(wrong: click.UsageError, root: click.Context) -> OneLineError:
    """Return the error with the nearest command or option, and the help to read."""
    context, said = wrong.ctx or root, " ".join(wrong.format_message().split()).rstrip(".")
    if isinstance(wrong, click.exceptions.NoArgsIsHelpError):
        said = f"name a command: {', '.join(_commands(context))}"
    if isinstance(context.command, click.Group) and said.startswith("No such command"):
        name = said.split("'")[1]
        said = f"No such command '{name}'" + _nearest(name, _commands(context))
    if isinstance(wrong, click.NoSuchOption):
        hints = import_module("headwater.cli.kafka_scripts")
        hint = hints.habit_hint(context.command_path.split()[1:], wrong.option_name)
        said = f"No such option '{wrong.option_name}'{hint}" if hint else said
    return OneLineUsageError(f"{said}; see {context.command_path} --help", root)


def _commands(context: click.Context) -> list[str]:
    """Return the subcommands that the help shows."""
    group = context.command
    assert isinstance(group, click.Group)
    if isinstance(group, LazyGroup):
        return group.list_commands(context)
    return [name for name, one in group.commands.items() if not one.hidden]


def _nearest(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def _closed_pipe(ctx: click.Context, broken: BrokenPipeError) -> Exception:
    """Exit quietly if stdout was closed (`consume | head`); report a broken connection."""
    from headwater.cli.output import stdout_is_closed

    if not stdout_is_closed():
        return OneLineError(broken.strerror or str(broken), ctx)
    _drop_stdout()
    return click.exceptions.Exit(0)


def _unwritable_stdout() -> str | None:
    """Return why what was printed cannot be written, and drop it; None if all of it is written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # its reader has all it wants
        _drop_stdout()
    except OSError as problem:
        _drop_stdout()
        return _not_written(problem)
    return None


def _not_written(problem: OSError) -> str:
    return f"cannot write to standard output: {problem.strerror or problem}"


def _drop_stdout() -> None:
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())  # the exit flushes what is buffered


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headwater", message="%(prog)s %(version)s")
@click.option(
    "--config",
    CONFIG_FILE,
    type=click.Path(exists=True, dir_okay=False),
    envvar="HEADWATER_CONFIG",
    show_envvar=True,
    help="Read client settings, such as bootstrap.servers, from a properties file.",
)
def command(config_file: str | None) -> None:
    """Event streaming in Python: a broker that speaks the Kafka protocol, and its tools."""


def main() -> None:
    """Run the command line; output that cannot be written is an error, also that of --help."""
    code: str | int | None = 0
    said = None
    try:
        command(prog_name="headwater")
    except SystemExit as leaving:
        code = leaving.code
    except OSError as problem:  # a command reports its own; here only help and version are printed
        said = _unwritable_stdout() or _not_written(problem)
    said = said or _unwritable_stdout()
    if said is not None and not code:
        click.echo(f"Error: {said}", err=True)
        code = 1
    sys.exit(code)


def _let_signals_interrupt() -> None:
    """From now on Ctrl-C, SIGTERM and a closed terminal interrupt the command, if this process is the command."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, _terminate),
        (signal.SIGHUP, _terminate),
    ):
        if signal.getsignal(number) is exit_at_once:
            signal.signal(number, handler)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)  # a second one ends at once
    _terminated.append(number)
    raise KeyboardInterrupt
