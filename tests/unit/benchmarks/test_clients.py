"""The benchmarks of clients: what they ask for, whose runs count, and the bare socket among them."""

import pytest
from benchmarks.clients import wire
from benchmarks.clients.contest import (
    arguments,
    broker_of,
    medians,
    parsed,
    place_of,
    rate_table,
    take_turns,
)

from headwater.errors import E, KafkaError
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.wire.framing import response
from headwater.wire.messages.fetch import FetchResponse


def asked(*words):
    return parsed(arguments("A contest.", ["quick", "slow"]), words)


def test_three_rounds_of_all_clients_on_our_broker_unless_told_otherwise():
    found = asked()
    assert (found.broker, found.rounds, found.client, found.json) == ("headwater", 3, None, None)
    found = asked("--broker", "apache", "--rounds", "1", "--client", "slow", "--client", "quick")
    assert (found.broker, found.rounds, found.client) == ("apache", 1, ["slow", "quick"])


def test_a_worker_is_told_its_client_and_its_broker():
    found = asked("--worker", "slow", "--bootstrap", "here:9092")
    assert (found.worker, found.bootstrap) == ("slow", "here:9092")


def test_a_secured_run_gives_every_client_the_same_login():
    assert broker_of(asked("--secure")) == "broker headwater, SASL_SSL"
    plain = place_of(asked("--worker", "slow", "--bootstrap", "here:9092"))
    assert plain.headwater() == plain.kafka_python() == plain.aiokafka()
    assert plain.librdkafka() == {"bootstrap.servers": "here:9092"}
    where = ("--bootstrap", "here:9092", "--authority", "ca.pem")
    secured = place_of(asked("--worker", "slow", *where))
    ours, theirs, other = secured.headwater(), secured.librdkafka(), secured.kafka_python()
    assert ours["security_protocol"] == theirs["security.protocol"] == "SASL_SSL"
    assert ours["ssl_cafile"] == theirs["ssl.ca.location"] == other["ssl_cafile"] == "ca.pem"
    assert ours["sasl_username"] == theirs["sasl.username"] == other["sasl_plain_username"]
    assert ours["sasl_password"] == theirs["sasl.password"] == other["sasl_plain_password"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--broker", "rabbit"], "invalid choice: 'rabbit'"),
        (["--client", "nobody"], "invalid choice: 'nobody'"),
        (["--rounds", "0"], "0 is less than one"),
        (["--bootstrap", "elsewhere:9092"], "see --broker"),
        (["--worker", "slow"], "see --broker"),
    ],
)
def test_what_makes_no_sense_is_refused(words, complaint, capsys):
    with pytest.raises(SystemExit):
        asked(*words)
    assert complaint in capsys.readouterr().err


def test_each_figure_has_its_own_median():
    rounds = [
        {"quick": {"rate": 1.0, "cpu_us": 9.0}, "slow": {"rate": 5.0, "cpu_us": 5.0}},
        {"quick": {"rate": 3.0, "cpu_us": 7.0}, "slow": {"rate": 5.0, "cpu_us": 5.0}},
        {"quick": {"rate": 2.0, "cpu_us": 8.5}, "slow": {"rate": 6.0, "cpu_us": 4.0}},
    ]
    assert medians(rounds) == {
        "quick": {"rate": 2.0, "cpu_us": 8.5},
        "slow": {"rate": 5.0, "cpu_us": 5.0},
    }


def test_clients_take_turns_and_the_first_round_is_not_counted():
    turns = []

    def measure(client):
        turns.append(client)
        return {"rate": float(len(turns))}

    assert take_turns(["quick", "slow"], 2, measure) == {
        "quick": {"rate": 4.0},  # its turns were 1, 3 and 5
        "slow": {"rate": 5.0},
    }
    assert turns == ["quick", "slow"] * 3


def test_ratios_are_to_the_better_row_of_confluent_kafka():
    rows = {
        "confluent-kafka": {"rate": 1000.0, "cpu_us": 2.0},
        "confluent-kafka tuned": {"rate": 2000.0, "cpu_us": 4.0},
        "ours": {"rate": 3000.0, "cpu_us": 1.0},
    }
    assert [" ".join(line.split()) for line in rate_table(rows).splitlines()] == [
        "0.50 x 1,000 /s 1.00 x 2.00 us CPU confluent-kafka",
        "1.00 x 2,000 /s 2.00 x 4.00 us CPU confluent-kafka tuned",
        "1.50 x 3,000 /s 0.50 x 1.00 us CPU ours",
    ]


class Pieces:
    """A socket that is handed its bytes in just these pieces, and then hangs up."""

    def __init__(self, *pieces):
        self._pieces = iter(pieces)

    def recv_into(self, room):
        piece = next(self._pieces, b"")
        room[: len(piece)] = piece
        return len(piece)


def fetched(records, error_code=0):
    partition = FetchResponse.PartitionData(
        partition_index=2, error_code=error_code, records=records
    )
    topic = FetchResponse.FetchableTopicResponse(topic="bench", partitions=[partition])
    return b"".join(response(0, wire.VERSION, FetchResponse(responses=[topic])))


def batches():
    records = [Record(0, 1, None, b"value", []) for _ in range(3)]
    return [bytes(build_batch(records, base_offset=offset, now=1)) for offset in (10, 13)]


def test_an_answer_that_comes_in_pieces_is_taken_whole():
    frame = fetched(b"".join(batches()))
    room = memoryview(bytearray(len(frame)))
    assert wire._answer(Pieces(frame[:2], frame[2:9], frame[9:]), room) == frame[4:]


def test_a_broker_that_hangs_up_is_an_error():
    with pytest.raises(ConnectionError):
        wire._answer(Pieces(fetched(None)[:-1]), memoryview(bytearray(1000)))


def test_the_next_fetch_begins_after_the_last_whole_batch():
    first, second = batches()
    cut = memoryview(fetched(first + second[:-1]))[4:]
    assert wire._ends(cut, {2: 10}) == {2: 13}
    whole = memoryview(fetched(first + second))[4:]
    assert wire._ends(whole, {2: 10}) == {2: 16}
    assert wire._ends(memoryview(fetched(None))[4:], {2: 10}) == {2: 10}


def test_an_error_of_the_broker_ends_the_run():
    with pytest.raises(KafkaError) as refused:
        wire._ends(memoryview(fetched(None, E.NOT_LEADER_OR_FOLLOWER))[4:], {2: 10})
    assert refused.value.code == E.NOT_LEADER_OR_FOLLOWER
