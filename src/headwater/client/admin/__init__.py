"""The admin client: topics, configs, groups, transactions, records and brokers; asyncio and blocking."""

from headwater.client.admin.acls import AclBinding
from headwater.client.admin.admin import Admin
from headwater.client.admin.blocking import Admin as BlockingAdmin
from headwater.client.admin.brokers import ClusterDescription, LogDirDescription
from headwater.client.admin.configs import (
    AlterConfigOp,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
)
from headwater.client.admin.groups import (
    GroupDescription,
    GroupListing,
    GroupNotEmptyError,
    MemberDescription,
    PartitionLag,
)
from headwater.client.admin.offset_resets import OffsetChange, ResetTo
from headwater.client.admin.replicas import PartitionReassignment
from headwater.client.admin.tokens import DelegationToken
from headwater.client.admin.topics import NewTopic
from headwater.client.admin.transactions import (
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from headwater.client.admin.users import (
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from headwater.security.acls import (
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from headwater.security.quotas import QuotaEntity

__all__ = [
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermission",
    "AclResourceType",
    "Admin",
    "AlterConfigOp",
    "BlockingAdmin",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "DelegationToken",
    "GroupDescription",
    "GroupListing",
    "GroupNotEmptyError",
    "LogDirDescription",
    "MemberDescription",
    "NewTopic",
    "OffsetChange",
    "PartitionLag",
    "PartitionReassignment",
    "ProducerState",
    "QuotaEntity",
    "ResetTo",
    "TransactionDescription",
    "TransactionListing",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]
