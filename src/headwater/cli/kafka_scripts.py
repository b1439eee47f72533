"""Kafka's own scripts: `headwater kafka-topics ...` prints the equivalent headwater command."""

import re
import shlex
from collections.abc import Callable, Sequence

import click

from headwater.cli.script_options import ScriptOptions

_REMOVED = {
    "--zookeeper": "--zookeeper was removed from Kafka's scripts: name a broker with --bootstrap-server",
    "--authorizer-properties": "--authorizer-properties was removed from Kafka's scripts: name a broker "
    "with --bootstrap-server",
    "--broker-list": "--broker-list was removed from Kafka's scripts: it is --bootstrap-server",
}
_NOT_THERE = {
    "kafka-preferred-replica-election": "it was removed from Kafka: type headwater elect --all",
    "kafka-server-stop": "press Ctrl-C where the broker runs, or send it SIGTERM",
    "zookeeper-server-stop": "press Ctrl-C where the store runs, or send it SIGTERM",
    "kafka-storage": "there is nothing to format: type headwater up",
    "kafka-features": "feature levels are not served",
    "kafka-share-groups": "share groups are not served yet",
}


_REASSIGN, _LOG_DIRS, _TARGETS = "kafka-reassign-partitions", "kafka-log-dirs", "chosen brokers"
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
        "--isolation-level": "write --isolation read-committed",
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


def habit_hint(path: Sequence[str], option: str) -> str:
    """Return what to write instead of an option of Kafka's own script; empty if unknown.

    `path` is the command without `headwater`: empty, `consume`, or `topics create`.
    """
    command = " ".join(path)
    hint = _HABITS.get(command, {}).get(option, "")
    if option in ("-b", "--broker-list"):
        hint = "write --bootstrap-server HOST:PORT after the command"
    elif option in ("--bootstrap-server", "--timeout"):
        hint = f"write it after the command, as in headwater topics list {option} ..."
    elif option == "--command-config":
        hint = f"write headwater --config FILE {command} ..."
    elif path[:1] == ["configs"] and option in ("--user", "--client-id", "--ip"):
        hint = f"users are in headwater users, quotas in headwater quotas list {option} ..."
    elif (path[:1], option) in ((["topics"], "--topic"), (["groups"], "--group")) and path[1:]:
        hint = f"the name is an argument: headwater {command} {option.strip('-').upper()}"
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
        raise click.UsageError(answer(name.removesuffix(".sh"), ctx.args), ctx.parent)

    return tell


def answer(script: str, words: Sequence[str]) -> str:
    """Return the headwater command for one of Kafka's scripts and its arguments."""
    given = ScriptOptions(words)
    if script in (_REASSIGN, _LOG_DIRS):  # there, it means broker ids
        given.rename("--broker-list", _TARGETS)
    notes = [text for option, text in _REMOVED.items() if option in given]
    refused = _NOT_THERE.get(script) or _not_served(script, given)
    if refused:
        return "; ".join([*notes, f"{script}: {refused}"])
    if script not in _LINES:
        known = ", ".join(sorted([*_LINES, *_NOT_THERE]))
        return f"{script} is not a known script: {known}"
    config = given.values("--command-config", "--consumer.config", "--producer.config")
    line = ["headwater", *(["--config", config[0]] if config else []), *_LINES[script](given)]
    for brokers in given.values("--bootstrap-server", "--bootstrap-servers", "--broker-list")[:1]:
        line += ["--bootstrap-server", brokers]
    dropped = given.left_out()
    if dropped:
        notes.append(f"without a counterpart: {', '.join(dropped)}")
    typed = shlex.join(line).replace("'\t'", r"$'\t'")  # a shell shows a tab as a space
    return "; ".join([*notes, f"type: {typed}"])


def _not_served(script: str, given: ScriptOptions) -> str:
    served = ("topics", "brokers", "users", "clients", "ips")
    kind = given.first("--entity-type", "topics")
    if script == "kafka-configs" and kind not in served:
        return f"configs of {kind} are not served, only those of {', '.join(served)}"
    if script == "kafka-consumer-groups" and "--delete-offsets" in given:
        return "call delete_group_offsets() of headwater.Admin, or delete the whole group with headwater groups delete"
    return ""


def _topics(given: ScriptOptions) -> list[str]:
    if "--list" in given:
        return ["topics", "list"]
    if "--describe" in given:
        return ["topics", "describe", *given.values("--topic")]
    topic = given.first("--topic", "TOPIC")
    if "--delete" in given:
        return ["topics", "delete", topic, *given.flag("--if-exists")]
    counts = given.each("--partitions", "--partitions")
    configs = given.each("--config", "--config")
    if "--alter" in given:
        unset = given.each("--delete-config", "--unset")
        return ["topics", "alter", topic, *counts, *configs, *unset]
    factor = given.each("--replication-factor", "--replication-factor")
    return ["topics", "create", topic, *counts, *factor, *configs, *given.flag("--if-not-exists")]


def _reassign(given: ScriptOptions) -> list[str]:
    file = given.first("--reassignment-json-file", "FILE")
    for verb in ("execute", "verify", "cancel"):
        if f"--{verb}" in given:
            throttle = given.each("--throttle", "--throttle") if verb == "execute" else []
            kept = given.flag("--preserve-throttles") if verb == "verify" else []
            return ["reassign", verb, file, *throttle, *kept]
    if "--list" in given:
        return ["reassign", "list"]
    given.flag("--generate")
    return ["reassign", "plan", "TOPIC", *given.each(_TARGETS, "--brokers")]


def _elect(given: ScriptOptions) -> list[str]:
    unclean = given.first("--election-type", "preferred").lower() == "unclean"
    named = f"{given.first('--topic', 'TOPIC')}:{given.first('--partition', '0')}"
    which = "--all" if "--all-topic-partitions" in given else named
    return ["elect", which, *(["--unclean"] if unclean else [])]


def _users(given: ScriptOptions) -> list[str]:
    name = given.first("--entity-name", "NAME")
    named = [part.partition("=")[0] for part in _split(given.values("--add-config"))]
    if named:  # the command asks for the password: others can see a command line
        return ["users", "add", name, *(word for one in named for word in ("--mechanism", one))]
    named = _split(given.values("--delete-config"))
    if named:
        return ["users", "remove", name, *(word for one in named for word in ("--mechanism", one))]
    return ["users", "list", *given.values("--entity-name")]


def _quotas(given: ScriptOptions, kinds: Sequence[str]) -> list[str]:
    names = iter(given.values("--entity-name"))
    where = []
    for kind in kinds:
        option = {"users": "user", "clients": "client-id", "ips": "ip"}[kind]
        name = next(names, None)
        where += [f"--default-{option}"] if name is None else [f"--{option}", name]
    given.flag("--entity-default")
    if "--add-config" in given:
        return ["quotas", "set", *where, *_split(given.values("--add-config"))]
    if "--delete-config" in given:
        return ["quotas", "remove", *where, *_split(given.values("--delete-config"))]
    return ["quotas", "list", *(where if given.values("--entity-name") else [])]


def _configs(given: ScriptOptions) -> list[str]:
    kinds = given.values("--entity-type")
    changed = "".join(given.values("--add-config", "--delete-config"))
    if "_rate" in changed or "request_percentage" in changed or {"clients", "ips"} & set(kinds):
        return _quotas(given, kinds)
    if kinds[:1] == ["users"]:
        return _users(given)
    name = given.first("--entity-name", "NAME")
    where = ["--broker" if given.first("--entity-type", "") == "brokers" else "--topic", name]
    if "--topic" in given:
        where = ["--topic", given.first("--topic", "NAME")]
    if "--broker" in given:
        where = ["--broker", given.first("--broker", "ID")]
    if "--entity-default" in given or "--broker-defaults" in given:
        where = ["--cluster-default"]
    if "--add-config" in given:
        return ["configs", "set", *where, *_split(given.values("--add-config"))]
    if "--delete-config" in given:
        return ["configs", "unset", *where, *_split(given.values("--delete-config"))]
    return ["configs", "describe", *where, *given.flag("--all")]


def _split(values: Sequence[str]) -> list[str]:
    """Split at commas outside of brackets; ours writes a list without them."""
    parts = [part for value in values for part in re.findall(r"(?:\[[^\]]*\]|[^,])+", value)]
    return [re.sub(r"=\[(.*)\]$", r"=\1", part) for part in parts]


def _groups(given: ScriptOptions) -> list[str]:
    if "--list" in given:
        return ["groups", "list"]
    group = given.first("--group", "GROUP")
    if "--delete" in given:
        return ["groups", "delete", group]
    if "--reset-offsets" not in given:
        name = ["--all"] if "--all-groups" in given else [group]
        return ["groups", "describe", *name, *given.flag("--members")]
    chosen = given.starting("--to-", "--shift-by", "--by-duration")
    topics = given.flag("--all-topics") or given.each("--topic", "--topic")
    given.flag("--dry-run")
    dry = [] if "--execute" in given else ["--dry-run"]
    return ["groups", "reset-offsets", group, *topics, *chosen, *dry]


def _produce(given: ScriptOptions) -> list[str]:
    known = ("parse.key", "key.separator", "null.marker")
    reader = given.properties(known, "--property", "--reader-property")
    line = ["produce", given.first("--topic", "TOPIC")]
    if reader.get("parse.key") == "true" or "key.separator" in reader:
        line += ["--key-separator", reader.get("key.separator", "\t")]
    if "null.marker" in reader:
        line += ["--null", reader["null.marker"]]
    line += given.each("--producer-property", "-o") + given.each("--command-property", "-o")
    if "--compression-codec" in given:
        line += ["-o", f"compression.type={given.first('--compression-codec', 'gzip')}"]
    for acks in given.values("--request-required-acks"):
        line += ["-o", f"acks={acks}"]
    return line


def _consume(given: ScriptOptions) -> list[str]:
    line = ["consume", given.first("--topic", "TOPIC")]
    beginning = "--from-beginning" in given
    if "--group" in given:
        line += given.each("--group", "--group")
        line += [] if beginning else ["-o", "auto.offset.reset=latest"]
    elif "--offset" in given:
        line += given.each("--offset", "--from")
    elif not beginning:
        line += ["--from", "latest"]
    line += given.each("--partition", "--partition") + given.each("--max-messages", "--count")
    line += _consume_format(given)
    for level in given.values("--isolation-level"):
        line += ["--isolation", level.replace("_", "-")]
    line += given.each("--consumer-property", "-o") + given.each("--command-property", "-o")
    return [*line, *([] if "--timeout-ms" in given else ["--follow"])]


def _consume_format(given: ScriptOptions) -> list[str]:
    letters = {
        "print.timestamp": "%T",
        "print.partition": "%p",
        "print.offset": "%o",
        "print.headers": "%h",
        "print.key": "%k",
    }
    known = (*letters, "print.value", "key.separator")
    printed = given.properties(known, "--property", "--formatter-property")
    shown = [letter for name, letter in letters.items() if printed.get(name) == "true"]
    if shown == ["%k"] and printed.get("print.value") != "false":
        separator = ["--separator", printed["key.separator"]] if "key.separator" in printed else []
        return ["--format", "key-value", *separator]
    shown += [] if printed.get("print.value") == "false" else ["%s"]
    between = printed.get("key.separator", "\\t")
    return [] if shown in ([], ["%s"]) else ["--format", between.join(shown) + "\\n"]


def _perf(kind: str) -> Callable[[ScriptOptions], list[str]]:
    def line(given: ScriptOptions) -> list[str]:
        words = ["perf", kind, given.first("--topic", "TOPIC")]
        words += given.each("--num-records", "--records") + given.each("--messages", "--records")
        if kind == "produce":
            words += given.each("--record-size", "--size")
            words += ["--rate", rate] if (rate := given.first("--throughput", "-1")) != "-1" else []
            words += _perf_transactions(given)
        for text in given.values("--producer-props"):
            key, _, value = text.partition("=")
            words += ["--bootstrap-server", value] if key == "bootstrap.servers" else ["-o", text]
        return words

    return line


def _perf_transactions(given: ScriptOptions) -> list[str]:
    names = [f"transactional.id={name}" for name in given.values("--transactional-id")]
    duration = given.each("--transaction-duration-ms", "--transaction-duration-ms")
    named = ["-o", names[0]] if names else []
    return ["--transactional", *named, *duration] if names or duration else []


def _transactions(given: ScriptOptions) -> list[str]:
    """The command follows an option's value: `--bootstrap-server HOST:PORT list`."""
    verbs = ("list", "describe", "describe-producers", "find-hanging", "abort")
    verb = given.word(verbs) or "list"
    topic, partition = given.first("--topic", ""), given.first("--partition", "")
    place = f"{topic}:{partition}" if partition else topic
    broker = given.each("--broker-id", "--broker")
    if verb == "describe":
        return ["transactions", "describe", given.first("--transactional-id", "ID")]
    if verb == "describe-producers":
        return ["producers", place or "TOPIC", *broker]
    if verb == "find-hanging":
        limit = given.each("--max-transaction-timeout", "--max-transaction-timeout")
        return ["transactions", "find-hanging", *([place] if place else []), *broker, *limit]
    if verb == "abort":
        start = ["--start-offset", given.first("--start-offset", "OFFSET")]
        return ["transactions", "abort", place or "TOPIC:PARTITION", *start]
    longer = given.each("--duration-filter", "--longer-than")
    return [
        "transactions",
        "list",
        *longer,
        *given.each("--transactional-id-pattern", "--id-pattern"),
    ]


def _acls(given: ScriptOptions) -> list[str]:
    """One resource at a time: a script's line may name several."""
    kinds = (
        *("--topic", "--group", "--cluster", "--transactional-id"),
        *("--delegation-token", "--user-principal"),
    )
    kind = next((option for option in kinds if option in given), "--topic")
    type_ = kind.strip("-").removesuffix("-principal")
    names = [] if kind == "--cluster" else [given.first(kind, "NAME")]
    given.flag("--force")
    given.flag("--add")
    prefixed = given.first("--resource-pattern-type", "literal").lower() == "prefixed"
    more = [*(["--prefixed"] if prefixed else [])]
    if "--list" in given:
        users = given.each("--principal", "--user")
        chosen = ["--type", type_, "--name", names[0]] if kind in given and names else []
        return ["acls", "list", *users, *chosen]
    verb = "deny" if "--deny-principal" in given else "allow"
    user = given.first(f"--{verb}-principal", "USER").removeprefix("User:")
    hosts = given.each(f"--{verb}-host", "--host")
    if "--producer" in given:
        return ["acls", "allow-producer", user, given.first("--topic", "TOPIC"), *hosts, *more]
    if "--consumer" in given:
        group = given.first("--group", "GROUP")
        return ["acls", "allow-consumer", user, given.first("--topic", "TOPIC"), group, *hosts]
    operations = given.values("--operation") or ["All"]
    words = ",".join(re.sub(r"(?<=[a-z])(?=[A-Z])", "-", one).lower() for one in operations)
    if "--remove" in given:
        return ["acls", "remove", user, words, type_, *names, *more]
    return ["acls", verb, user, words, type_, *names, *hosts, *more]


def _tokens(given: ScriptOptions) -> list[str]:
    """Tokens are named by id: other users can see a command line, and an HMAC is enough to log in."""
    given.values("--hmac")
    owners = given.each("--owner-principal", "--owner")
    if "--renew" in given:
        return ["tokens", "renew", "TOKEN", *_period(given, "--renew-time-period", "--for")]
    if "--expire" in given:
        return ["tokens", "expire", "TOKEN", *_period(given, "--expiry-time-period", "--in")]
    if "--create" not in given:
        return ["tokens", "list", *owners]
    renewers = given.each("--renewer-principal", "--renewer")
    lifetime = _period(given, "--max-life-time-period", "--lifetime")
    return ["tokens", "create", *owners[:2], *renewers, *lifetime]


def _period(given: ScriptOptions, option: str, ours: str) -> list[str]:
    """Return a period in milliseconds as ours; a negative one is the default."""
    text = given.first(option, "-1")
    return [ours, f"PT{int(text) / 1000}S".replace(".0S", "S")] if text.isdigit() else []


def _server_start(given: ScriptOptions) -> list[str]:
    files = [word for word in given.values("") if not word.startswith("-")]
    return ["up", "--config", *(files[:1] or ["FILE"]), *given.each("--override", "-o")]


_LINES: dict[str, Callable[[ScriptOptions], list[str]]] = {
    "kafka-topics": _topics,
    "kafka-configs": _configs,
    "kafka-acls": _acls,
    "kafka-delegation-tokens": _tokens,
    "kafka-consumer-groups": _groups,
    _REASSIGN: _reassign,
    "kafka-leader-election": _elect,
    "kafka-groups": lambda given: ["groups", "list"],
    "kafka-console-producer": _produce,
    "kafka-console-consumer": _consume,
    "kafka-producer-perf-test": _perf("produce"),
    "kafka-consumer-perf-test": _perf("consume"),
    "kafka-transactions": _transactions,
    "kafka-delete-records": lambda given: ["topics", "trim", "TOPIC", "--before", "OFFSET"],
    "kafka-get-offsets": lambda given: ["topics", "describe", *given.values("--topic")],
    _LOG_DIRS: lambda given: [
        *("brokers", "log-dirs"),
        *(one for text in given.values(_TARGETS) for one in text.split(",")),
    ],
    "kafka-dump-log": lambda given: ["log", "dump", given.first("--files", "FILE").split(",")[0]],
    "kafka-cluster": lambda given: ["cluster"],
    "kafka-broker-api-versions": lambda given: ["cluster"],
    "kafka-server-start": _server_start,
    "zookeeper-server-start": lambda given: ["store"],
}
