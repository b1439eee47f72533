"""ACLs: describe (29), create (30), delete (31)."""

from headwater.wire.schema import Struct, i8, i16, i32, since

LITERAL = 3


class DescribeAclsRequest(Struct, api_key=29, versions="0-3", flexible="2+"):
    """Select ACLs.

    1: prefixed patterns (KIP-290). 3: users as resources.
    """

    resource_type_filter: i8 = 0
    resource_name_filter: str | None = None
    pattern_type_filter: i8 = since("1+", default=LITERAL)
    principal_filter: str | None = None
    host_filter: str | None = None
    operation: i8 = 0
    permission_type: i8 = 0


class DescribeAclsResponse(Struct, api_key=29, versions="0-3", flexible="2+"):
    """The selected ACLs by resource."""

    class DescribeAclsResource(Struct):
        """A resource pattern."""

        resource_type: i8 = 0
        resource_name: str = ""
        pattern_type: i8 = since("1+", default=LITERAL)
        acls: "list[DescribeAclsResponse.AclDescription]" = since(default=[])

    class AclDescription(Struct):
        """One ACL."""

        principal: str = ""
        host: str = ""
        operation: i8 = 0
        permission_type: i8 = 0

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = since(default=[])


class CreateAclsRequest(Struct, api_key=30, versions="0-3", flexible="2+"):
    """ACLs to create."""

    class AclCreation(Struct):
        """One ACL."""

        resource_type: i8 = 0
        resource_name: str = ""
        resource_pattern_type: i8 = since("1+", default=LITERAL)
        principal: str = ""
        host: str = ""
        operation: i8 = 0
        permission_type: i8 = 0

    creations: list[AclCreation] = since(default=[])


class CreateAclsResponse(Struct, api_key=30, versions="0-3", flexible="2+"):
    """One result for each ACL of the request, in its order."""

    class AclCreationResult(Struct):
        """One result."""

        error_code: i16 = 0
        error_message: str | None = ""

    throttle_time_ms: i32 = 0
    results: list[AclCreationResult] = since(default=[])


class DeleteAclsRequest(Struct, api_key=31, versions="0-3", flexible="2+"):
    """Filters that select the ACLs to delete."""

    class DeleteAclsFilter(Struct):
        """One filter."""

        resource_type_filter: i8 = 0
        resource_name_filter: str | None = None
        pattern_type_filter: i8 = since("1+", default=LITERAL)
        principal_filter: str | None = None
        host_filter: str | None = None
        operation: i8 = 0
        permission_type: i8 = 0

    filters: list[DeleteAclsFilter] = since(default=[])


class DeleteAclsResponse(Struct, api_key=31, versions="0-3", flexible="2+"):
    """What each filter of the request deleted, in its order."""

    class DeleteAclsFilterResult(Struct):
        """The ACLs that one filter selected."""

        error_code: i16 = 0
        error_message: str | None = ""
        matching_acls: "list[DeleteAclsResponse.DeleteAclsMatchingAcl]" = since(default=[])

    class DeleteAclsMatchingAcl(Struct):
        """One deleted ACL."""

        error_code: i16 = 0
        error_message: str | None = ""
        resource_type: i8 = 0
        resource_name: str = ""
        pattern_type: i8 = since("1+", default=LITERAL)
        principal: str = ""
        host: str = ""
        operation: i8 = 0
        permission_type: i8 = 0

    throttle_time_ms: i32 = 0
    filter_results: list[DeleteAclsFilterResult] = since(default=[])
