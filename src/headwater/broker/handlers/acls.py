"""DescribeAcls, CreateAcls, DeleteAcls: any broker reads and changes the ACLs of the cluster."""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar

from headwater.broker.acl_changes import AclChanges, AclEdit, Outcomes
from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.broker.turns import Steps, drained, each
from headwater.controller.store.metadata_store import StoreError
from headwater.errors import E, KafkaError
from headwater.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)
from headwater.security.refusals import refusal_text
from headwater.security.rights import ALTER_CLUSTER
from headwater.wire.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

MAX_TEXT = 4096
"""Characters of a name, a principal or a host; the first is part of a path in the metadata store."""
MAX_REPEATED = 10_000
"""The most repeated ACLs in the answer to a deletion; Kafka's controller deletes at most as many in all."""

_Created = CreateAclsResponse.AclCreationResult
_Deleted = DeleteAclsResponse.DeleteAclsFilterResult
_Matching = DeleteAclsResponse.DeleteAclsMatchingAcl
_Described = DescribeAclsResponse.DescribeAclsResource
_Acl: TypeAlias = tuple[ResourcePattern, AclEntry]
Word = TypeVar("Word", bound=IntEnum)


def _acls(context: Context) -> AclChanges:
    """Return the ACLs; KafkaError on a broker without an authorizer."""
    if context.acls is None:
        raise KafkaError(
            E.SECURITY_DISABLED,
            "no authorizer is configured: set authorizer.class.name and super.users on every broker, "
            "and restart it",
        )
    return context.acls


# DescribeAcls


def handle_describe_acls(
    context: Context, request: Request, body: DescribeAclsRequest
) -> Steps[DescribeAclsResponse]:
    """Return the selected ACLs, grouped by the resource patterns that they are for."""
    try:
        acls = _acls(context)
        wanted = _filter(body)
    except KafkaError as refused:
        return DescribeAclsResponse(error_code=refused.code, error_message=refused.message)
    found: dict[ResourcePattern, list[AclEntry]] = {}
    for one in acls.index.select(wanted):
        if one is None:
            yield
        else:
            found.setdefault(one[0], []).append(one[1])
    return DescribeAclsResponse(error_message=None, resources=each(found.items(), _described))


def _described(found: tuple[ResourcePattern, list[AclEntry]]) -> _Described:
    pattern, entries = found
    return _Described(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        acls=[
            DescribeAclsResponse.AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for entry in entries
        ],
    )


# CreateAcls


def handle_create_acls(
    context: Context, request: Request, body: CreateAclsRequest
) -> Steps[CreateAclsResponse | None]:
    """Create ACLs, and reply once they are in force here; an existing one is left as it is."""
    try:
        acls = _acls(context)
    except KafkaError as refused:
        return refuse_creations(request, body, refused.code, refused.message)
    added: dict[ResourcePattern, set[AclEntry]] = {}
    wanted: list[_Acl | KafkaError] = []
    for creation in drained(body.creations):
        yield
        try:
            pattern, entry = _new_acl(creation)
        except KafkaError as refusal:
            wanted.append(refusal)
        else:
            added.setdefault(pattern, set()).add(entry)
            wanted.append((pattern, entry))

    def answer(outcomes: Outcomes) -> Steps[CreateAclsResponse]:
        yield from _audit(context, request, "acls created", added, outcomes)

        def created(one: _Acl | KafkaError) -> _Created:
            failure = one if isinstance(one, KafkaError) else outcomes[one[0]].failure
            if failure is not None:
                return _Created(error_code=failure.code, error_message=failure.message)
            return _Created(error_message=None)

        return CreateAclsResponse(results=each(wanted, created))

    edits = {pattern: AclEdit(added=frozenset(some)) for pattern, some in added.items()}
    acls.write(edits, lambda outcomes: request.reply_in_turns(answer(outcomes)))
    return None


def refuse_creations(
    request: Request, body: CreateAclsRequest, error: E, message: str | None = None
) -> CreateAclsResponse:
    """Refuse each ACL of a request."""
    message = message or _missing_right(error)
    return CreateAclsResponse(
        results=each(body.creations, lambda _: _Created(error_code=error, error_message=message))
    )


def _missing_right(error: E) -> str | None:
    right = ALTER_CLUSTER
    if error is not right.refusal:
        return None
    return refusal_text(None, right.operation, right.resource_type, CLUSTER_NAME, error)


def _new_acl(creation: CreateAclsRequest.AclCreation) -> _Acl:
    """Return the ACL to create; KafkaError if it cannot exist."""
    resource_type = _word(AclResourceType, creation.resource_type, "resource type")
    pattern_type = _word(AclPatternType, creation.resource_pattern_type, "pattern type")
    operation = _word(AclOperation, creation.operation, "operation")
    permission = _word(AclPermission, creation.permission_type, "permission type")
    if 1 in (resource_type, pattern_type, operation, permission) or pattern_type == 2:
        raise KafkaError(E.INVALID_REQUEST, "ANY and MATCH are for filters only")
    name, principal = creation.resource_name, creation.principal
    if not name:
        raise KafkaError(E.INVALID_REQUEST, "the resource has no name")
    if resource_type is AclResourceType.CLUSTER and name != CLUSTER_NAME:
        raise KafkaError(E.INVALID_REQUEST, f"the cluster's only name is {CLUSTER_NAME!r}")
    kind, colon, who = principal.partition(":")
    if not (kind and colon and who):
        raise KafkaError(E.INVALID_REQUEST, f"the principal {principal!r} is not like User:alice")
    if not creation.host:
        raise KafkaError(E.INVALID_REQUEST, "the host is empty: write an address, or *")
    for what, text in (("resource", name), ("principal", principal), ("host", creation.host)):
        if len(text) > MAX_TEXT:
            raise KafkaError(
                E.INVALID_REQUEST,
                f"the {what} has {len(text)} characters; the metadata store takes {MAX_TEXT}",
            )
    pattern = ResourcePattern(resource_type, pattern_type, name)
    return pattern, AclEntry(principal, creation.host, operation, permission)


# DeleteAcls


def handle_delete_acls(context: Context, request: Request, body: DeleteAclsRequest) -> None:
    """Delete what the filters select, and reply once it is no longer in force here."""
    try:
        acls = _acls(context)
    except KafkaError as refused:
        request.reply_in_turns(refuse_deletions(request, body, refused.code, refused.message))
        return

    def delete(failure: StoreError | None) -> None:
        if failure is None and not acls.loading:
            request.reply_in_turns(_delete(context, request, body, acls))
            return
        why = failure or "this broker is reading all ACLs"
        said = f"the metadata store could not be read ({why}): try again"
        request.reply_in_turns(refuse_deletions(request, body, E.REQUEST_TIMED_OUT, said))

    acls.catch_up(delete)


def _delete(
    context: Context, request: Request, body: DeleteAclsRequest, acls: AclChanges
) -> Steps[DeleteAclsResponse | None]:
    selected: list[list[_Acl] | KafkaError] = []
    removed: dict[ResourcePattern, set[AclEntry]] = {}
    known: dict[AclFilter, list[_Acl]] = {}
    repeated = 0
    for one in body.filters:
        yield
        try:
            wanted = _filter(one)
        except KafkaError as refusal:
            selected.append(refusal)
            continue
        matching = known.get(wanted)
        if matching is not None:
            repeated += len(matching)
        else:
            matching = known[wanted] = []
            for found in acls.index.select(wanted):
                if found is None:
                    yield
                    continue
                matching.append(found)
                entries = removed.setdefault(found[0], set())
                repeated += found[1] in entries
                entries.add(found[1])
        selected.append(matching)
        if repeated > MAX_REPEATED:
            said = (
                f"the filters select ACLs that earlier ones select more than {MAX_REPEATED} times: "
                "send each filter once, and fewer that overlap"
            )
            return refuse_deletions(request, body, E.INVALID_REQUEST, said)

    def answer(outcomes: Outcomes) -> Steps[DeleteAclsResponse]:
        gone = {pattern: outcome.removed for pattern, outcome in outcomes.items()}
        yield from _audit(context, request, "acls deleted", gone, outcomes)
        return DeleteAclsResponse(
            filter_results=each(selected, lambda one: _deleted(one, outcomes))
        )

    edits = {pattern: AclEdit(removed=frozenset(some)) for pattern, some in removed.items()}
    acls.write(edits, lambda outcomes: request.reply_in_turns(answer(outcomes)))
    return None


def _deleted(selected: list[_Acl] | KafkaError, outcomes: Outcomes) -> _Deleted:
    if isinstance(selected, KafkaError):
        return _Deleted(error_code=selected.code, error_message=selected.message)

    def matching(acl: _Acl) -> _Matching:
        (pattern, entry), failure = acl, outcomes[acl[0]].failure
        return _Matching(
            error_code=failure.code if failure else E.NONE,
            error_message=failure.message if failure else None,
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )

    # An ACL that another request has deleted meanwhile is not in the answer.
    found = [
        (pattern, entry)
        for pattern, entry in selected
        if outcomes[pattern].failure is not None or entry in outcomes[pattern].removed
    ]
    return _Deleted(error_message=None, matching_acls=each(found, matching))


def refuse_deletions(
    request: Request, body: DeleteAclsRequest, error: E, message: str | None = None
) -> DeleteAclsResponse:
    """Refuse each filter of a request."""
    message = message or _missing_right(error)
    return DeleteAclsResponse(
        filter_results=each(
            body.filters, lambda _: _Deleted(error_code=error, error_message=message)
        )
    )


# all of them


def _audit(
    context: Context,
    request: Request,
    event: str,
    changed: Mapping[ResourcePattern, Collection[AclEntry]],
    outcomes: Outcomes,
) -> Steps[None]:
    for pattern, entries in changed.items():
        yield
        if entries and outcomes[pattern].failure is None:
            kind = f"{pattern.resource_type.name} {pattern.pattern_type.name}"
            described = (
                f"{one.permission.name} {one.principal} {one.operation.name} from {one.host}"
                for one in sorted(entries)
            )
            context.note_change(request, event, f"{kind} {pattern.name}", described)


def _filter(body: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        _word(AclResourceType, body.resource_type_filter, "resource type"),
        body.resource_name_filter,
        _word(AclPatternType, body.pattern_type_filter, "pattern type"),
        body.principal_filter,
        body.host_filter,
        _word(AclOperation, body.operation, "operation"),
        _word(AclPermission, body.permission_type, "permission type"),
    )


def _word(kind: type[Word], number: int, what: str) -> Word:
    words: dict[int, Any] = kind._value2member_map_
    if number not in words:
        raise KafkaError(E.INVALID_REQUEST, f"{number} is not a {what} of ACLs")
    word: Word = words[number]
    return word
