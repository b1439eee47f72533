"""Where the quotas of an entity are in the metadata store: Kafka 3.9's layout."""

from headwater.controller.store.znodes import DEFAULT_ENTITY, clients_of_user, user_of_clients
from headwater.security.quotas import DEFAULT, QuotaEntity


def node_of(entity: QuotaEntity) -> tuple[str, str]:
    """Return the type and the name of the entity below /config."""
    if entity.ip is not None:
        return "ips", _stored(entity.ip)
    if entity.user is None:
        return "clients", _stored(entity.client_id or DEFAULT)
    if entity.client_id is None:
        return "users", _stored(entity.user)
    return clients_of_user(_stored(entity.user)), _stored(entity.client_id)


def entity_at(kind: str, name: str) -> QuotaEntity:
    """Return the entity of a node."""
    shown = DEFAULT if name == DEFAULT_ENTITY else name
    user = user_of_clients(kind)
    if user is not None:
        return QuotaEntity(DEFAULT if user == DEFAULT_ENTITY else user, shown)
    if kind == "users":
        return QuotaEntity(shown)
    return QuotaEntity(ip=shown) if kind == "ips" else QuotaEntity(None, shown)


def _stored(name: str) -> str:
    return DEFAULT_ENTITY if name == DEFAULT else name
