"""DescribeClientQuotas, AlterClientQuotas."""

from collections import Counter
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import partial
from typing import Protocol, TypeAlias

from headwater.broker.context import Context
from headwater.broker.quota_nodes import node_of
from headwater.broker.request import Request
from headwater.broker.turns import Steps, drained, each
from headwater.controller.commands import AlterQuotas, QuotaChange, QuotaOutcome
from headwater.errors import E, KafkaError
from headwater.security.quotas import CLIENT_ID, DEFAULT, IP, USER, QuotaEntity, quota_text
from headwater.security.rights import ALTER_CLUSTER_CONFIGS
from headwater.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_Described = DescribeClientQuotasResponse.EntryData
_DescribedPart = DescribeClientQuotasResponse.EntityData
_Value = DescribeClientQuotasResponse.ValueData
_Component = DescribeClientQuotasRequest.ComponentData
_Wanted = AlterClientQuotasRequest.EntryData
_Altered = AlterClientQuotasResponse.EntryData
_AlteredPart = AlterClientQuotasResponse.EntityData


class QuotaMatch(IntEnum):
    """How a filter compares names, with its number in the protocol."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


# -- DescribeClientQuotas

_Test: TypeAlias = Callable[[str], bool]


def handle_describe_client_quotas(
    context: Context, request: Request, body: DescribeClientQuotasRequest
) -> Steps[DescribeClientQuotasResponse]:
    """Return the quotas of the entities that have all parts of the filter, and no others if strict."""
    try:
        tests = _tests(body.components)
    except KafkaError as refused:
        return DescribeClientQuotasResponse(
            error_code=refused.code, error_message=refused.message, entries=None
        )
    found = []
    for entity, quotas in list(context.client_quotas.table.entities.items()):
        if _matches(entity, tests, strict=body.strict):
            found.append((entity, quotas))
        yield
    return DescribeClientQuotasResponse(error_message=None, entries=each(found, _described))


def _tests(components: Iterable[_Component]) -> dict[str, _Test]:
    tests: dict[str, _Test] = {}
    for one in components:
        if one.entity_type in tests:
            raise KafkaError(E.INVALID_REQUEST, f"{one.entity_type} appears twice in the filter")
        if not one.entity_type:
            raise KafkaError(E.INVALID_REQUEST, "a part of the filter has no entity type")
        if one.entity_type not in (USER, CLIENT_ID, IP):
            raise KafkaError(
                E.UNSUPPORTED_VERSION,
                f"{one.entity_type!r} is not an entity type; there are {USER}, {CLIENT_ID}, {IP}",
            )
        tests[one.entity_type] = _test(one)
    if IP in tests and len(tests) > 1:
        raise KafkaError(E.INVALID_REQUEST, f"{IP} cannot be combined with {USER} or {CLIENT_ID}")
    return tests


def _test(one: _Component) -> _Test:
    if one.match_type == QuotaMatch.EXACT and one.match is not None:
        name = one.match
        return lambda found: bool(found) and found == name
    if one.match_type == QuotaMatch.DEFAULT and one.match is None:
        return lambda found: found == DEFAULT
    if one.match_type == QuotaMatch.ANY and one.match is None:
        return lambda found: True
    raise KafkaError(
        E.INVALID_REQUEST,
        f"match type {one.match_type} of {one.entity_type}: use 0 with a name, or 1 (default) or "
        "2 (any) without one",
    )


def _matches(entity: QuotaEntity, tests: dict[str, _Test], *, strict: bool) -> bool:
    parts = dict(entity.parts)
    if strict and len(parts) != len(tests):
        return False
    return all(kind in parts and test(parts[kind]) for kind, test in tests.items())


def _described(found: tuple[QuotaEntity, dict[str, float]]) -> _Described:
    entity, quotas = found
    return _Described(
        entity=[
            _DescribedPart(entity_type=kind, entity_name=None if name == DEFAULT else name)
            for kind, name in entity.parts
        ],
        values=[_Value(key=key, value=value) for key, value in quotas.items()],
    )


# -- AlterClientQuotas


class _NamedPart(Protocol):
    entity_type: str
    entity_name: str | None


def handle_alter_client_quotas(
    context: Context, request: Request, body: AlterClientQuotasRequest
) -> Steps[None]:
    """Set and remove quotas; the answer has one result for each entity."""
    counts: Counter[frozenset[tuple[str, str | None]]] = Counter()
    for one in body.entries:
        counts[_key(one.entity)] += 1
        yield
    changes: list[QuotaChange] = []
    answers: list[tuple[_Altered, QuotaChange | None]] = []
    for one in drained(body.entries):
        yield
        answer, change = _altered(one, None), None
        try:
            if counts[_key(one.entity)] > 1:
                raise KafkaError(E.INVALID_REQUEST, "the entity appears twice in the request")
            change = _change(one)
            changes.append(change)
        except KafkaError as refused:
            answer.error_code, answer.error_message = refused.code, refused.message
        answers.append((answer, change))

    def reply(outcomes: list[QuotaOutcome]) -> None:
        rest = iter(outcomes)

        def answered(row: tuple[_Altered, QuotaChange | None]) -> _Altered:
            answer, change = row
            if change is not None:
                outcome = next(rest)
                answer.error_code, answer.error_message = outcome.error, outcome.message
                if outcome.error is E.NONE and not body.validate_only:
                    context.note_change(
                        request, "quotas changed", change.shown, _said(change),
                        right=ALTER_CLUSTER_CONFIGS,
                    )  # fmt: skip
            return answer

        request.reply_in_turns(AlterClientQuotasResponse(entries=each(answers, answered)))

    if body.validate_only:
        reply([QuotaOutcome() for _ in changes])
    else:
        context.controller.submit(AlterQuotas(changes), reply)


def refuse_describe_quotas(
    request: Request, body: DescribeClientQuotasRequest, error: E
) -> DescribeClientQuotasResponse:
    """The answer without entries."""
    return DescribeClientQuotasResponse(error_code=error, entries=None)


def refuse_alter_quotas(
    request: Request, body: AlterClientQuotasRequest, error: E
) -> AlterClientQuotasResponse:
    """The answer that refuses the whole request."""
    return AlterClientQuotasResponse(entries=each(body.entries, partial(_altered, error=error)))


def _said(change: QuotaChange) -> list[str]:
    return [
        f"{key} removed" if value is None else f"{key}={value}"
        for key, value in change.quotas.items()
    ]


def _altered(one: _Wanted, error: E | None) -> _Altered:
    return _Altered(
        error_code=error or E.NONE,
        error_message=error.text if error else None,
        entity=[
            _AlteredPart(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in one.entity
        ],
    )


def _key(parts: Iterable[_NamedPart]) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in parts)


def _change(one: _Wanted) -> QuotaChange:
    parts = {part.entity_type: part.entity_name for part in one.entity}
    if len(parts) < len(one.entity):
        raise KafkaError(E.INVALID_REQUEST, "an entity type appears twice in one entity")
    entity = QuotaEntity.of(parts)
    quotas: dict[str, str | None] = {}
    for op in one.ops:
        if op.key in quotas:
            raise KafkaError(E.INVALID_REQUEST, f"{op.key} appears twice for one entity")
        if op.remove:
            entity.check_key(op.key)
            quotas[op.key] = None
        else:
            entity.check(op.key, op.value)
            quotas[op.key] = quota_text(op.key, op.value)
    return QuotaChange(node_of(entity), str(entity), quotas)
