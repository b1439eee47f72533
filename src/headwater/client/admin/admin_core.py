"""One admin on the event loop: its settings, its calls, and a part for each kind of thing.

Both faces (`admin.py` and `blocking.py`) hold a core and hand every call to one of its parts.
"""

from collections.abc import Mapping

from headwater.client.admin.acls import AclAdmin
from headwater.client.admin.brokers import BrokerAdmin
from headwater.client.admin.calls import AdminCalls
from headwater.client.admin.configs import ConfigAdmin
from headwater.client.admin.groups import GroupAdmin
from headwater.client.admin.quotas import QuotaAdmin
from headwater.client.admin.replicas import ReplicaAdmin
from headwater.client.admin.tokens import TokenAdmin
from headwater.client.admin.topics import TopicAdmin
from headwater.client.admin.transactions import TransactionAdmin
from headwater.client.admin.users import UserAdmin
from headwater.config.client import AdminSettings
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.network import Network, TcpNetwork
from headwater.seams.randomness import Randomness, SystemRandomness


class AdminCore:
    """The parts of an admin; belongs to the loop that it is first used on."""

    def __init__(
        self,
        settings: Mapping[str, object],
        clock: Clock | None = None,
        network: Network | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.settings = AdminSettings.of(settings)
        self.calls = AdminCalls(
            self.settings,
            clock or SystemClock(),
            network or TcpNetwork(),
            randomness or SystemRandomness(),
        )
        self.topics = TopicAdmin(self.calls)
        self.configs = ConfigAdmin(self.calls)
        self.groups = GroupAdmin(self.calls, self.topics)
        self.brokers = BrokerAdmin(self.calls)
        self.quotas = QuotaAdmin(self.calls)
        self.replicas = ReplicaAdmin(self.calls)
        self.transactions = TransactionAdmin(self.calls)
        self.users = UserAdmin(self.calls)
        self.acls = AclAdmin(self.calls)
        self.tokens = TokenAdmin(self.calls)
