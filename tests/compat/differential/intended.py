"""The one table of what Headwater answers otherwise, on purpose. Each row says why."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from tests.compat.differential.compare import Difference
from tests.compat.differential.peer import CLOSED

ANY = object()
WRONG_LOGIN = (
    "Authentication failed: Invalid username or password",
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
    "SCRAM-SHA-256",
)
COUNTED_IN_MS = ("retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms")


class Row(NamedTuple):
    """Differences that are meant: where (patterns of fnmatch, `|` between several), what, why."""

    scene: str
    label: str
    path: str
    apache: Sequence[Any] | object
    ours: Sequence[Any] | object
    reason: str

    def covers(self, scene: str, found: Difference) -> bool:
        """Whether this row stands for that difference."""
        return (
            _matches(scene, self.scene)
            and _matches(found.label, self.label)
            and _matches(found.path, self.path)
            and (self.apache is ANY or found.apache in _listed(self.apache))
            and (self.ours is ANY or found.ours in _listed(self.ours))
        )


def _matches(text: str, patterns: str) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns.split("|"))


def _listed(values: Sequence[Any] | object) -> Sequence[Any]:
    return values if isinstance(values, list) else [values]


INTENDED = [
    # -- everywhere
    Row(
        "*", "*", "*error_message", [None, ""], "text",
        "A refusal says why, also where Kafka leaves the code alone.",
    ),
    Row(
        "*", "*", "*error_code", -1, [17, 42, 76, 87],
        "Kafka stumbles and says UNKNOWN_SERVER_ERROR; a broker that looks first names the fault.",
    ),
    Row(
        "*", "a topic twice*|a partition twice*|one group twice*", "*", ANY, ANY,
        "What one request names twice is one entry of a map in Kafka; here it is answered twice.",
    ),
    Row(
        "describe_groups", "a group named twice*", "groups*", ANY, ANY,
        "Described once: a short request that repeats a large group would have an answer of gigabytes.",
    ),
    # -- epochs
    Row(
        "fetch_epochs", "last epoch * at *", "responses*error_code", 1, 75,
        "A client that read a newer epoch than the leader's own asked a former leader: it must look "
        "for the new one (UNKNOWN_LEADER_EPOCH), not reset its position.",
    ),
    # -- rights
    Row(
        "rights_of_users", "*", "*error_message", "", None,
        "Without an error there is no message.",
    ),
    Row(
        "rights_of_users", "*: users (v0)", "results", ANY, [[]],
        "Kafka names a user '' that is forbidden too; the error of the whole request says it.",
    ),
    Row(
        "rights_of_users", "*: configs of 32 (v4)", "results*", ANY, [[]],
        "Groups have configs only with the consumer groups of KIP-848, which are not served.",
    ),
    # -- logins
    Row(
        "logins_*", "*", "error_message", "", None,
        "Without an error there is no message.",
    ),
    Row(
        "logins_*", "*: text", "", ANY, list(WRONG_LOGIN),
        "All wrong logins with a mechanism get one text, whatever is wrong with them.",
    ),
    Row(
        "logins_*", "metadata before the token*|between tokens*|request meanwhile*", "", ANY, CLOSED,
        "Only what belongs to a login is read before its end; Kafka answers, and closes then.",
    ),
    Row(
        "logins_in_the_wrong_order", "versions before the token*", "*", ANY, ANY,
        "Versions are told at any time: they do no harm.",
    ),
    Row(
        "logins_with_scram", "unknown user*", "*", ANY, ANY,
        "Unknown users fail at the last step, like wrong passwords: names cannot be listed.",
    ),
    Row(
        "logins_too_soon", "right after a login*", "*", ANY, ANY,
        "Nobody logs in twice within a second; Kafka counts from the second login on.",
    ),
    Row(
        "logins_again", "another mechanism*|unknown mechanism*", "*", ANY, ANY,
        "Another mechanism than before is refused at once, with a code; both brokers close.",
    ),
    Row(
        "logins_again", "huge token*", "*", ANY, ANY,
        "Who has logged in may send frames of socket.request.max.bytes; the token is refused anyway.",
    ),
    # -- elections and moves
    Row(
        "elect_leaders", "all (v*", "replica_election_results", ANY, [[]],
        "Of all partitions only those are named where something is to be done, and only their topics.",
    ),
    Row(
        "reassign_partitions", "none (v*", "error_message", "", None,
        "Without an error there is no message.",
    ),
    # -- not served yet
    Row(
        "*", "*", "*configs.remote.*", ANY, "nothing",
        "There is no tiered storage: its keys would promise what is not there.",
    ),
    Row(
        "*", "*", "*configs.local.retention.*", ANY, "nothing",
        "There is no tiered storage: nothing is local as opposed to remote.",
    ),
    Row(
        "*", "*", "*configs*min.insync.replicas*", ANY, ANY,
        "Kafka 4 stores this key for the whole cluster when eligible leader replicas are on.",
    ),
    Row(
        "describe_broker_configs", "*of ''*", "results[[]0].configs", ANY, [[]],
        "The same key: it is the only one that a new Kafka stores for the whole cluster.",
    ),
    Row(
        "describe_broker_configs", "default has none*", "results[[]0].configs", ANY, [[]],
        "The same key: it is the only one that a new Kafka stores for the whole cluster.",
    ),
    Row(
        "every_broker_config", "keys", "*", "nothing", ANY,
        "Keys that Kafka has and does not show; log.validate.records and max.request.elements "
        "are ours.",
    ),
    Row(
        "every_broker_config", "keys", "listener.security.protocol.map.read_only", False, True,
        "Listeners do not change while the broker runs.",
    ),
    Row(
        "every_broker_config", "keys", "ssl.*.read_only|sasl.*.read_only", ANY, ANY,
        "Key and trust stores are read again while the broker runs; other keys need a restart.",
    ),
    Row(
        "every_broker_config", "keys", "ssl.*.value", ANY, ANY,
        "TLS is that of OpenSSL with PEM stores, and TLS 1.2 is used only if it is named.",
    ),
    Row(
        "every_broker_config", "keys", "sasl.enabled.mechanisms.value", "GSSAPI", ANY,
        "Kerberos is not supported: a SASL listener offers SCRAM unless told otherwise.",
    ),
    Row(
        "every_broker_config", "keys", "ssl.*certificate*", ANY, ANY,
        "Certificates are no secret: they are shown.",
    ),
    Row(
        "every_broker_config", "keys", "super.users.*", ANY, ANY,
        "Kafka does not know the keys of its authorizer, and hides their values.",
    ),
    Row(
        "every_broker_config", "keys", "socket.listen.backlog.size.value", "50", "1024",
        "Thousands of clients that connect at once are all taken; 50 would leave most to retry.",
    ),
    # -- more lenient
    Row(
        "produce_offset_deltas*", "* NONE, *", "stored[[]0].offsets*", ANY, list(range(10)),
        "Records of a batch that is read are counted again; Kafka stores the client's numbers.",
    ),
    Row(
        "produce_offset_deltas*", "*", "error_codes*|base_offsets*", -1, 0,
        "Kafka means to count compressed records again, and fails when it rebuilds the batch.",
    ),
    Row(
        "produce_offset_deltas*", "*", "stored", [[]], ANY,
        "The same: what Kafka could not rebuild is not there to be read.",
    ),
    # -- stricter
    Row(
        "produce_what_no_client_sends", "*", "error_code", 0, [32, 87],
        "Bits and bytes that no client sends are refused, not corrected: nothing unchecked is stored.",
    ),
    Row(
        "produce_bad_batches", "*", "*log_start_offset", [-1, 0], [-1, 0],
        "Which faults are found before the log is looked at, whose start is then told, differs.",
    ),
    Row(
        "change_broker_configs", "unknown at*", "*", ANY, ANY,
        "Kafka stores any broker key; here a misspelt one is refused.",
    ),
    Row(
        "fetch_sessions", "unknown partition joins*|and is told each time*|all are forgotten*", "*",
        ANY, ANY,
        "A session ends when a partition joins it that does not exist: invented ones would take "
        "memory. The client goes on without a session.",
    ),
    Row(
        "fetch_as_a_replica", "as *", "*", ANY, ANY,
        "Who is not a broker may not read like a follower, that would move the high watermark.",
    ),
    Row(
        "malformed_requests", "*not UTF-8", "", "an answer", CLOSED,
        "Text that is not UTF-8 ends the connection; Java replaces it with question marks.",
    ),
    # -- truer
    Row(
        "delete_records", "ends *: -3*", "*", ANY, ANY,
        "The newest of the records that are left; Kafka may name one that was deleted.",
    ),
    Row(
        "produce_idempotent", "*again*", "*log_append_time_ms", "now", -1,
        "Kafka gives a duplicate the time of its records as if the broker had stamped them.",
    ),
    Row(
        "batches_*", "the first again*", "*log_append_time_ms", "now", -1,
        "Kafka gives a duplicate the time of its records as if the broker had stamped them.",
    ),
    Row(
        "produce_idempotent", "producers*", "*last_timestamp", ANY, ANY,
        "The time of the last write, from which expiry counts. Kafka takes the records' own time "
        "and forgets at once who writes old ones.",
    ),
    Row(
        "*", "*", "|".join(f"*configs.{key}.synonyms" for key in COUNTED_IN_MS), ANY, ANY,
        "A topic's value that comes from log.retention.hours, log.roll.hours and the like names "
        "them; Kafka looks no further than the key in milliseconds.",
    ),
    Row(
        "describe_broker_configs", "auto.create.topics.enable*|node.id*",
        "*synonyms*", ANY, ANY,
        "Defaults that differ, see docs/reference: a misspelt name makes no topic, and one broker "
        "starts without a file.",
    ),
    Row(
        "produce_times", "the time is the first one's", "", True, False,
        "A duplicate's answer has the time of the retry: of the remembered batches no time is kept.",
    ),
    # -- what makes no sense gets the sense it can have
    Row(
        "fetch_sizes", "negative *", "*", ANY, ANY,
        "A negative limit means no limit below one batch; Kafka answers UNKNOWN_SERVER_ERROR.",
    ),
    Row(
        "*", "isolation *", "*", ANY, ANY,
        "An isolation level that does not exist reads what is committed to the log; Kafka stumbles.",
    ),
    Row(
        "metadata", "by neither*", "*", ANY, ANY,
        "One nameless topic spoils Kafka's whole answer; here only its own row.",
    ),
    Row(
        "describe_topic_partitions", "empty name*", "*", ANY, ANY,
        "The same here: Kafka stumbles over a topic without a name.",
    ),
    Row(
        "a_topic_made_anew", "the session of the old topic*", "*", [103, None], [100, []],
        "A session knows its topics by id, and that one is gone; Kafka also remembers the name, "
        "finds another topic of that name and says that the ids differ.",
    ),
    Row(
        "offset_for_leader_epoch", "epoch -2*", "*", ANY, ANY,
        "There is no epoch -2; Kafka answers where the first one begins.",
    ),
]  # fmt: skip


def unintended(scene: str, found: Sequence[Difference]) -> list[Difference]:
    """The differences that no row stands for."""
    return [it for it in found if not any(row.covers(scene, it) for row in INTENDED)]


def idle_rows(scenes_and_differences: Sequence[tuple[str, Difference]]) -> list[Row]:
    """Rows that stand for nothing any more: the brokers agree, and the row must go."""
    return [
        row
        for row in INTENDED
        if not any(row.covers(scene, found) for scene, found in scenes_and_differences)
    ]
