"""A client that is nobody: it asks without a login, and logs in with what it has guessed."""

from collections.abc import Callable

from headwater.client.login import PasswordLogin
from headwater.config.client_sasl import SaslCredentials
from headwater.errors import KafkaError
from headwater.security.broker_handshake import MECHANISM, BrokerCredentials, CallingBroker
from headwater.security.sasl_exchange import AuthenticationRefused
from headwater.security.scram_credentials import SCRAM_SHA_256
from headwater.transport.client_connection import ClientConnection
from headwater.transport.sasl_login import log_in
from headwater.wire.messages.acls import DescribeAclsRequest, DescribeAclsResponse
from headwater.wire.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse
from headwater.wire.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from headwater.wire.schema import Struct
from simulator.cluster import Cluster
from simulator.invariants import Promises
from simulator.node import PORT
from simulator.randomness import SimRandomness, stream
from simulator.security.users import ADMIN, APP, OF, Users
from simulator.workload.real_clients import RealClient

REQUESTS: tuple[tuple[Struct, type[Struct]], ...] = (
    (MetadataRequest(topics=None), MetadataResponse),
    (DescribeClusterRequest(), DescribeClusterResponse),
    (DescribeAclsRequest(), DescribeAclsResponse),
    (FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=1)), FetchResponse),
    (ProduceRequest(acks=-1), ProduceResponse),
)


class Stranger(RealClient):
    """Tries until the run is over; the wiretap notices what it gets."""

    def __init__(
        self,
        cluster: Cluster,
        promises: Promises,
        users: Users,
        is_outdated: Callable[[int], bool],
        over: Callable[[], bool],
    ) -> None:
        """`is_outdated` returns whether every broker knows of a change that long ago."""
        super().__init__(cluster, promises, "stranger")
        self._users = users
        self._is_outdated = is_outdated
        self._over = over
        self._randomness = SimRandomness(stream(cluster.seed, "stranger ids"))
        self.tries = 0

    async def run(self) -> None:
        """Try one thing after the other."""
        while not self._over():
            try:
                await self._try()
            except (KafkaError, OSError, AuthenticationRefused):
                self.tries += 1
            await self.pause(600)

    async def _try(self) -> None:
        node = self.chance.choice(self.cluster.nodes)
        connection = await ClientConnection.open(
            self.cluster.network, node.host, PORT, client_id="stranger", timeout_s=1.5
        )
        request, answer = self.chance.choice(REQUESTS)
        try:
            match self.chance.randrange(4):
                case 0:
                    await connection.call(
                        SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse
                    )
                case 1:
                    await self._pose_as_broker(connection, node.settings.node_id)
                case 2:
                    await PasswordLogin(self._guess(), self._randomness).prepare(connection)
                case _:
                    pass
            await connection.call(request, answer)
        finally:
            connection.close()

    async def _pose_as_broker(self, connection: ClientConnection, called: int) -> None:
        mine = BrokerCredentials(1 + called % 3, "cluster", bytes(32))
        await log_in(connection, MECHANISM, CallingBroker(mine, called, bytes(32)))

    def _guess(self) -> SaslCredentials:
        """Return a password that was replaced, or a wrong one."""
        old = [
            (user, text)
            for user, password in self._users.passwords.items()
            for replaced_us, text in password.replaced
            if self._is_outdated(replaced_us)
        ]
        if old and self.chance.random() < 0.7:
            user, text = self.chance.choice(old)
            return SaslCredentials(SCRAM_SHA_256.name, user, text)
        user = self.chance.choice((ADMIN, APP, "nobody", *OF))
        mechanism = self.chance.choice(("PLAIN", SCRAM_SHA_256.name))
        return SaslCredentials(mechanism, user, "s3cret-guessed")
