"""CreateDelegationToken (38), Renew (39), Expire (40) and Describe (41), by a client without a login."""

from headwater.wire.messages.tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.compat.differential.scene import Scene, scene, versions

_Renewer = CreateDelegationTokenRequest.CreatableRenewers
_Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner


@scene
def delegation_tokens_without_a_login(s: Scene) -> None:
    renewers = [_Renewer(principal_type="User", principal_name="bob")]
    for version in versions(CreateDelegationTokenRequest):
        s.ask("a token", CreateDelegationTokenRequest(renewers=renewers), version)
    other = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    s.ask("a token of another", other)
    for version in versions(RenewDelegationTokenRequest):
        s.ask("renew", RenewDelegationTokenRequest(hmac=b"none", renew_period_ms=-1), version)
    for version in versions(ExpireDelegationTokenRequest):
        s.ask(
            "expire", ExpireDelegationTokenRequest(hmac=b"none", expiry_time_period_ms=0), version
        )
    owners = [_Owner(principal_type="User", principal_name="bob")]
    for version in versions(DescribeDelegationTokenRequest):
        s.ask("all", DescribeDelegationTokenRequest(owners=None), version)
        s.ask("of bob", DescribeDelegationTokenRequest(owners=owners), version)
