"""ACLs: describe, create, delete."""

from collections.abc import Iterable
from typing import NamedTuple

from headwater.client.admin.arguments import as_list
from headwater.client.admin.calls import AdminCalls
from headwater.client.errors import failure
from headwater.errors import E, error_of
from headwater.security.acls import (
    WILDCARD,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from headwater.wire.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

_MAY_MISS_TYPES = "the broker knows ACLs that this client does not know"


class AclBinding(NamedTuple):
    """One ACL: who may, or may not, do what to which resources."""

    principal: str
    operation: AclOperation
    resource_type: AclResourceType
    name: str
    pattern_type: AclPatternType = AclPatternType.LITERAL
    permission: AclPermission = AclPermission.ALLOW
    host: str = WILDCARD


class AclAdmin:
    """Describes and changes ACLs."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def describe_acls(self, wanted: AclFilter | None = None) -> list[AclBinding]:
        rule = wanted or AclFilter()

        async def attempt() -> list[AclBinding]:
            request = DescribeAclsRequest(
                resource_type_filter=rule.resource_type,
                resource_name_filter=rule.name,
                pattern_type_filter=rule.pattern_type,
                principal_filter=rule.principal,
                host_filter=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            node = await self._calls.cluster.any_node()
            answer = await self._calls.cluster.ask(node, request, DescribeAclsResponse)
            _raise(answer.error_code, answer.error_message)
            return [
                _binding(
                    acl.principal,
                    acl.operation,
                    resource.resource_type,
                    resource.resource_name,
                    resource.pattern_type,
                    acl.permission_type,
                    acl.host,
                )
                for resource in answer.resources
                for acl in resource.acls
            ]

        return await self._calls.retry("the description of ACLs", attempt)

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        wanted = as_list("create_acls", bindings)

        async def attempt() -> None:
            request = CreateAclsRequest(
                creations=[
                    CreateAclsRequest.AclCreation(
                        resource_type=one.resource_type,
                        resource_name=one.name,
                        resource_pattern_type=one.pattern_type,
                        principal=one.principal,
                        host=one.host,
                        operation=one.operation,
                        permission_type=one.permission,
                    )
                    for one in wanted
                ]
            )
            node = await self._calls.cluster.any_node()
            answer = await self._calls.cluster.ask(node, request, CreateAclsResponse)
            await self._calls.raise_refusals(
                (one.name, result.error_code, result.error_message)
                for one, result in zip(wanted, answer.results, strict=True)
            )

        await self._calls.retry("the creation of ACLs", attempt)

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        rules = as_list("delete_acls", filters)

        async def attempt() -> list[AclBinding]:
            request = DeleteAclsRequest(
                filters=[
                    DeleteAclsRequest.DeleteAclsFilter(
                        resource_type_filter=rule.resource_type,
                        resource_name_filter=rule.name,
                        pattern_type_filter=rule.pattern_type,
                        principal_filter=rule.principal,
                        host_filter=rule.host,
                        operation=rule.operation,
                        permission_type=rule.permission,
                    )
                    for rule in rules
                ]
            )
            node = await self._calls.cluster.any_node()
            answer = await self._calls.cluster.ask(node, request, DeleteAclsResponse)
            for result in answer.filter_results:
                _raise(result.error_code, result.error_message)
                for acl in result.matching_acls:
                    _raise(acl.error_code, acl.error_message)
            return [
                _binding(
                    acl.principal,
                    acl.operation,
                    acl.resource_type,
                    acl.resource_name,
                    acl.pattern_type,
                    acl.permission_type,
                    acl.host,
                )
                for result in answer.filter_results
                for acl in result.matching_acls
            ]

        return await self._calls.retry("the deletion of ACLs", attempt)


def _raise(code: int, message: str | None) -> None:
    if code:
        raise failure(code, message or error_of(code).text)


def _binding(
    principal: str,
    operation: int,
    resource_type: int,
    name: str,
    pattern_type: int,
    permission: int,
    host: str,
) -> AclBinding:
    try:
        return AclBinding(
            principal,
            AclOperation(operation),
            AclResourceType(resource_type),
            name,
            AclPatternType(pattern_type),
            AclPermission(permission),
            host,
        )
    except ValueError as unknown:
        raise failure(E.UNSUPPORTED_VERSION, f"{_MAY_MISS_TYPES}: {unknown}") from unknown
