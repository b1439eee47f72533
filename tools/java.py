"""Runs Kafka's own Java programs: the command-line tools by the names of their scripts.

For a JVM that lives for a second, one compiler tier and the serial collector halve the time of a
call. The class of each script is that of Kafka 4.3 (only kafka-configs is still in the old
package).
"""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.jars import JarsUnavailable, class_path

KAFKA = "kafka-4.3.1"
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512M")

_T = "org.apache.kafka.tools."
TOOLS: Mapping[str, str] = {
    "kafka-acls": _T + "AclCommand",
    "kafka-broker-api-versions": _T + "BrokerApiVersionsCommand",
    "kafka-cluster": _T + "ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": _T + "consumer.ConsoleConsumer",
    "kafka-console-producer": _T + "ConsoleProducer",
    "kafka-consumer-groups": _T + "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": _T + "ConsumerPerformance",
    "kafka-delegation-tokens": _T + "DelegationTokenCommand",
    "kafka-delete-records": _T + "DeleteRecordsCommand",
    "kafka-dump-log": _T + "DumpLogSegments",
    "kafka-e2e-latency": _T + "EndToEndLatency",
    "kafka-get-offsets": _T + "GetOffsetShell",
    "kafka-groups": _T + "GroupsCommand",
    "kafka-leader-election": _T + "LeaderElectionCommand",
    "kafka-log-dirs": _T + "LogDirsCommand",
    "kafka-producer-perf-test": _T + "ProducerPerformance",
    "kafka-reassign-partitions": _T + "reassign.ReassignPartitionsCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": _T + "TopicCommand",
    "kafka-transactions": _T + "TransactionsCommand",
    "kafka-verifiable-consumer": _T + "VerifiableConsumer",
    "kafka-verifiable-producer": _T + "VerifiableProducer",
}


def java(*arguments: str, jars: str = KAFKA, before: tuple[Path, ...] = ()) -> list[str]:
    """The command line of a JVM with the set `jars` (and the folders `before`) on its class path."""
    found = shutil.which("java")
    if found is None:
        raise JarsUnavailable("no java on the PATH: install a JRE 17 or later")
    return [found, "-cp", class_path(jars, *before), *arguments]


def tool(script: str, *arguments: str, jars: str = KAFKA) -> list[str]:
    """Return the command line of one of Kafka's scripts."""
    return java(*SHORT_LIVED, TOOLS[script], *arguments, jars=jars)


def run_tool(
    script: str,
    *arguments: str,
    jars: str = KAFKA,
    stdin: str | None = None,
    timeout: float = 60,
) -> "subprocess.CompletedProcess[str]":
    """Run a tool to its end; the caller checks the exit status and the output."""
    return subprocess.run(
        tool(script, *arguments, jars=jars),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
