"""Quotas of users, client ids and addresses: describe and change."""

from collections.abc import Mapping

from headwater.client.admin.arguments import as_mapping
from headwater.client.admin.calls import AdminCalls
from headwater.client.refusals import told
from headwater.security.acls import AclOperation
from headwater.security.quotas import DEFAULT, QuotaEntity
from headwater.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_Component = DescribeClientQuotasRequest.ComponentData
_Entry = AlterClientQuotasRequest.EntryData
_Part = AlterClientQuotasRequest.EntityData
_Op = AlterClientQuotasRequest.OpData
_EXACT, _DEFAULT = 0, 1
_BY_ENTITY = "{QuotaEntity: {quota: value}}"


class QuotaAdmin:
    """Describes and changes quotas."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def describe_client_quotas(
        self, entity: QuotaEntity | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        components = [
            _Component(
                entity_type=kind,
                match_type=_DEFAULT if name == DEFAULT else _EXACT,
                match=None if name == DEFAULT else name,
            )
            for kind, name in (_checked(entity).parts if entity is not None else ())
        ]
        request = DescribeClientQuotasRequest(components=components, strict=strict)

        async def attempt() -> dict[QuotaEntity, dict[str, float]]:
            node = await self._calls.cluster.any_node()
            answer = await self._calls.cluster.ask(node, request, DescribeClientQuotasResponse)
            whole = ("the description of quotas", answer.error_code, answer.error_message)
            await self._calls.raise_refusals([whole])
            return {
                QuotaEntity.of({part.entity_type: part.entity_name for part in one.entity}): {
                    value.key: value.value for value in one.values
                }
                for one in answer.entries or ()
            }

        return await self._calls.retry("the description of quotas", attempt)

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        given = as_mapping("alter_client_quotas", changes, _BY_ENTITY)
        request = AlterClientQuotasRequest(validate_only=validate_only)
        request.entries = [_entry(_checked(entity), quotas) for entity, quotas in given.items()]
        entities = list(given)

        async def attempt() -> None:
            answer = await self._calls.ask_controller(request, AlterClientQuotasResponse)
            await self._calls.raise_refusals(
                (str(entity), one.error_code, self._told(one))
                for entity, one in zip(entities, answer.entries, strict=True)
            )

        await self._calls.retry("the change of quotas", attempt)

    def _told(self, one: AlterClientQuotasResponse.EntryData) -> str:
        settings, code = self._calls.settings, one.error_code
        return told(settings, code, AclOperation.ALTER_CONFIGS, message=one.error_message)


def _checked(entity: QuotaEntity) -> QuotaEntity:
    if not isinstance(entity, QuotaEntity):
        raise TypeError(f"{entity!r} is not a QuotaEntity: write QuotaEntity(user={entity!r})")
    return entity


def _entry(entity: QuotaEntity, quotas: Mapping[str, float | None]) -> _Entry:
    return _Entry(
        entity=[
            _Part(entity_type=kind, entity_name=None if name == DEFAULT else name)
            for kind, name in entity.parts
        ],
        ops=[
            _Op(key=key, remove=True) if value is None else _Op(key=key, value=float(value))
            for key, value in quotas.items()
        ],
    )
