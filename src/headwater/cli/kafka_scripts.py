"""Kafka's own scripts: `headwater kafka-topics ...` prints the equivalent headwater command."""

from collections.abc import Callable, Mapping, Sequence

import click

Words = Mapping[str, Sequence[str]]
"""Options of a script with their values, in the order of the command line."""

_REMOVED = {
    "--zookeeper": "--zookeeper was removed from Kafka's scripts: name a broker with --bootstrap-server",
    "--authorizer-properties": "--authorizer-properties was removed from Kafka's scripts: name a broker "
    "with --bootstrap-server",
    "--broker-list": "--broker-list was removed from Kafka's scripts: it is --bootstrap-server",
}
_NOT_THERE = {
    "kafka-acls": "access control is not served yet",
    "kafka-preferred-replica-election": "it was removed from Kafka: type headwater elect --all",
    "kafka-features": "feature levels are not served",
    "kafka-share-groups": "share groups are not served yet",
    "kafka-transactions": "transactions are not served yet",
}


_REASSIGN, _TARGETS = "kafka-reassign-partitions", "brokers to move to"
_TOPIC_IS_AN_ARGUMENT = "the topic is an argument: headwater {command} TOPIC"
_HABITS: dict[str, dict[str, str]] = {
    "consume": {
        "--json": "write --format json",
        "--from-beginning": "leave it out: without --from, reading starts at the beginning",
        "--max-messages": "write --count N",
        "--topic": _TOPIC_IS_AN_ARGUMENT,
        "--whitelist": "topics are arguments: headwater consume TOPIC TOPIC",
        "--include": "topics are arguments: headwater consume TOPIC TOPIC",
        "--property": "write --format key-value, json, full or a template such as '%k %s'",
        "--formatter-property": "write --format key-value, json, full or a template such as '%k %s'",
        "--formatter": "write --format key-value, json, full or a template such as '%k %s'",
        "--consumer-property": "write -o KEY=VALUE",
        "--command-property": "write -o KEY=VALUE",
        "--consumer.config": "write headwater --config FILE consume ...",
        "--command-config": "write headwater --config FILE consume ...",
        "--offset": "write --from OFFSET",
        "--isolation-level": "write -o isolation.level=read_committed",
        "--timeout-ms": "leave it out: reading stops at the end unless --follow is given",
    },
    "produce": {
        "--json": "write --format json",
        "--topic": _TOPIC_IS_AN_ARGUMENT,
        "--property": "write --key-separator TEXT, --null TEXT or --header NAME=VALUE",
        "--reader-property": "write --key-separator TEXT, --null TEXT or --header NAME=VALUE",
        "--producer-property": "write -o KEY=VALUE",
        "--command-property": "write -o KEY=VALUE",
        "--producer.config": "write headwater --config FILE produce ...",
        "--command-config": "write headwater --config FILE produce ...",
        "--compression-codec": "write -o compression.type=zstd",
        "--request-required-acks": "write -o acks=all",
    },
    "topics": {f"--{verb}": f"write headwater topics {verb}" for verb in (
        "create", "list", "describe", "alter", "delete"
    )},
    "groups": {f"--{verb}": f"write headwater groups {verb}" for verb in (
        "list", "describe", "delete", "reset-offsets"
    )},
    "configs": {
        "--describe": "write headwater configs describe",
        "--alter": "write headwater configs set KEY=VALUE, or configs unset KEY",
    },
}  # fmt: skip


def habit_hint(command: str, option: str) -> str:
    """Return what to write instead of an option of Kafka's own script; empty if unknown."""
    hint = _HABITS.get(command, {}).get(option, "")
    return f": {hint.format(command=command)}" if hint else ""


def command_for(name: str) -> click.Command:
    """Return a command that accepts the script's arguments and prints what to type."""

    @click.command(
        name,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
        help=f"Print what to type instead of {name}.",
    )
    @click.pass_context
    def tell(ctx: click.Context) -> None:
        raise click.UsageError(answer(name.removesuffix(".sh"), ctx.args))

    return tell


def answer(script: str, words: Sequence[str]) -> str:
    """Return the headwater command for one of Kafka's scripts and its arguments."""
    given = _parsed(words)
    if script == _REASSIGN:  # there, it means brokers to move to
        given[_TARGETS] = given.pop("--broker-list", [])
    notes = [text for option, text in _REMOVED.items() if option in given]
    if script in _NOT_THERE:
        return "; ".join([*notes, f"{script}: {_NOT_THERE[script]}"])
    if script not in _LINES:
        known = ", ".join(sorted([*_LINES, *_NOT_THERE]))
        return f"{script} is not a known script: {known}"
    line = ["headwater", *_LINES[script](given)]
    for option in ("--bootstrap-server", "--bootstrap-servers", "--broker-list"):
        if option in given:
            line += ["--bootstrap-server", *given[option][:1]]
    return "; ".join([*notes, f"type: {' '.join(line)}"])


def _parsed(words: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    option = ""
    for word in words:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if word.startswith("--"):
            option = name
            found.setdefault(option, []).extend([value] if equals else [])
        else:
            found.setdefault(option, []).append(word)
    return found


def _first(given: Words, option: str, otherwise: str) -> str:
    return next(iter(given.get(option, ())), otherwise)


def _each(given: Words, option: str, ours: str) -> list[str]:
    return [word for value in given.get(option, ()) for word in (ours, value)]


def _topics(given: Words) -> list[str]:
    topic = _first(given, "--topic", "TOPIC")
    if "--list" in given:
        return ["topics", "list"]
    if "--delete" in given:
        return ["topics", "delete", topic, *_flag(given, "--if-exists")]
    if "--describe" in given:
        return ["topics", "describe", *given.get("--topic", ())]
    counts = _each(given, "--partitions", "--partitions")
    configs = _each(given, "--config", "--config")
    if "--alter" in given:
        return ["topics", "alter", topic, *counts, *configs]
    factor = _each(given, "--replication-factor", "--replication-factor")
    return ["topics", "create", topic, *counts, *factor, *configs, *_flag(given, "--if-not-exists")]


def _reassign(given: Words) -> list[str]:
    file = _first(given, "--reassignment-json-file", "FILE")
    for verb in ("execute", "verify", "cancel"):
        if f"--{verb}" in given:
            return ["reassign", verb, file]
    if "--list" in given:
        return ["reassign", "list"]
    return ["reassign", "plan", "TOPIC", *_each(given, _TARGETS, "--brokers")]


def _elect(given: Words) -> list[str]:
    unclean = _first(given, "--election-type", "preferred").lower() == "unclean"
    topic = _first(given, "--topic", "TOPIC")
    which = (
        ["--all"]
        if "--all-topic-partitions" in given
        else [f"{topic}:{_first(given, '--partition', '0')}"]
    )
    return ["elect", *which, *(["--unclean"] if unclean else [])]


def _flag(given: Words, option: str) -> list[str]:
    return [option] if option in given else []


def _configs(given: Words) -> list[str]:
    kind = _first(given, "--entity-type", "topics")
    name = _first(given, "--entity-name", "NAME")
    where = {"topics": ["--topic", name], "brokers": ["--broker", name]}.get(
        kind, ["--topic", name]
    )
    if "--topic" in given:
        where = ["--topic", _first(given, "--topic", "NAME")]
    if "--broker" in given:
        where = ["--broker", _first(given, "--broker", "ID")]
    if "--entity-default" in given or "--broker-defaults" in given:
        where = ["--cluster-default"]
    if "--add-config" in given:
        return ["configs", "set", *where, *_split(given["--add-config"])]
    if "--delete-config" in given:
        return ["configs", "unset", *where, *_split(given["--delete-config"])]
    return ["configs", "describe", *where, *_flag(given, "--all")]


def _split(values: Sequence[str]) -> list[str]:
    return [part for value in values for part in value.split(",")]


def _groups(given: Words) -> list[str]:
    group = _first(given, "--group", "GROUP")
    if "--list" in given:
        return ["groups", "list"]
    if "--delete" in given:
        return ["groups", "delete", group]
    if "--reset-offsets" not in given:
        name = ["--all"] if "--all-groups" in given else [group]
        return ["groups", "describe", *name, *_flag(given, "--members")]
    targets = [word for word in given if word.startswith(("--to-", "--shift-by", "--by-duration"))]
    chosen = [part for word in targets for part in (word, *given[word])]
    topics = _flag(given, "--all-topics") or _each(given, "--topic", "--topic")
    dry = [] if "--execute" in given else ["--dry-run"]
    return ["groups", "reset-offsets", group, *topics, *chosen, *dry]


def _produce(given: Words) -> list[str]:
    separator = [
        word
        for text in (*given.get("--property", ()), *given.get("--reader-property", ()))
        if text.startswith("key.separator=")
        for word in ("--key-separator", text.partition("=")[2])
    ]
    return ["produce", _first(given, "--topic", "TOPIC"), *separator]


def _consume(given: Words) -> list[str]:
    start = [] if "--from-beginning" in given or "--group" in given else ["--from", "latest"]
    limits = _each(given, "--max-messages", "--count") + _each(given, "--partition", "--partition")
    follow = [] if "--max-messages" in given else ["--follow"]
    group = _each(given, "--group", "--group")
    return ["consume", _first(given, "--topic", "TOPIC"), *start, *limits, *group, *follow]


def _perf(kind: str) -> Callable[[Words], list[str]]:
    def line(given: Words) -> list[str]:
        records = _each(given, "--num-records", "--records") + _each(
            given, "--messages", "--records"
        )
        size = _each(given, "--record-size", "--size") if kind == "produce" else []
        return ["perf", kind, _first(given, "--topic", "TOPIC"), *records, *size]

    return line


_LINES: dict[str, Callable[[Words], list[str]]] = {
    "kafka-topics": _topics,
    "kafka-configs": _configs,
    "kafka-consumer-groups": _groups,
    _REASSIGN: _reassign,
    "kafka-leader-election": _elect,
    "kafka-groups": lambda given: ["groups", "list"],
    "kafka-console-producer": _produce,
    "kafka-console-consumer": _consume,
    "kafka-producer-perf-test": _perf("produce"),
    "kafka-consumer-perf-test": _perf("consume"),
    "kafka-delete-records": lambda given: ["topics", "trim", "TOPIC", "--before", "OFFSET"],
    "kafka-get-offsets": lambda given: ["topics", "describe", *given.get("--topic", ())],
    "kafka-log-dirs": lambda given: ["topics", "list"],
    "kafka-dump-log": lambda given: ["log", "dump", _first(given, "--files", "FILE")],
    "kafka-cluster": lambda given: ["cluster"],
    "kafka-broker-api-versions": lambda given: ["cluster"],
    "kafka-server-start": lambda given: ["up", "--config", _first(given, "", "FILE")],
}
