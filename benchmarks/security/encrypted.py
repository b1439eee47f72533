"""Loads over SASL_SSL on both brokers, and over TLS beside plain text on ours."""

from benchmarks.load import rounds
from benchmarks.load.cases import CASES, Case
from benchmarks.load.rounds import Scale, rate
from benchmarks.load.servers import Headwater, Server
from benchmarks.load.targets import Figure, Limit, at_least, at_most
from benchmarks.security.servers import SecureHeadwater, SecureKafka, Stores

_FETCH, _LARGE, _SMALL = "fetch-4c-new", "produce-64KiB-new", "produce-1rec-10c-new"


def _samples(names: tuple[str, ...], servers: list[Server], scale: Scale) -> rounds.Samples:
    cases = [CASES[name] for name in names]
    found = rounds.run_rounds(cases, servers, scale, print)
    if found.failures:
        raise RuntimeError(str(found.failures))
    return found.samples


def _ratio(
    samples: rounds.Samples, case: Case, ours: str, theirs: str, measure: str, limit: Limit
) -> Figure:
    pairs = zip(samples[case.name][ours], samples[case.name][theirs], strict=True)
    if "CPU" in measure:
        ratios = [a.cpu_us_per_byte / b.cpu_us_per_byte for a, b in pairs]
    else:
        ratios = [rate(case, a) / rate(case, b) for a, b in pairs]
    return Figure(case.name, measure, ratios, limit)


def sasl_ssl(scale: Scale) -> list[Figure]:
    """Fetches, large and small produce requests over SASL_SSL beside Apache Kafka."""
    with (
        Stores() as stores,
        SecureKafka(stores, "SASL_SSL") as kafka,
        SecureHeadwater(stores, "SASL_SSL") as ours,
    ):
        samples = _samples((_FETCH, _LARGE, _SMALL), [kafka, ours], scale)
    return [
        _ratio(samples, CASES[name], "headwater", "kafka", f"SASL_SSL, {measure} ÷ kafka", limit)
        for name, measure, limit in (
            (_FETCH, "CPU per byte", at_most(0.6)),
            (_LARGE, "rate", at_least(1.4)),
            (_SMALL, "rate", at_least(2.3)),
        )
    ]


def tls_beside_plain(scale: Scale) -> list[Figure]:
    """Single records over TLS and in plain text on our broker."""
    with Stores() as stores, Headwater() as plain, SecureHeadwater(stores, "SSL", "tls") as tls:
        samples = _samples((_SMALL,), [plain, tls], scale)
    case = CASES[_SMALL]
    return [_ratio(samples, case, "tls", "headwater", "TLS, rate ÷ plain text", at_least(0.6))]
