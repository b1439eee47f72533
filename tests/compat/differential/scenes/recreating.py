"""A topic that is deleted and created again is another topic: what old ids and offsets mean."""

from headwater.wire.messages.metadata import MetadataRequest
from headwater.wire.messages.topics import DeleteTopicsRequest
from tests.compat.differential.batch import batch
from tests.compat.differential.coordinator import coordinator
from tests.compat.differential.scene import Scene, scene
from tests.compat.differential.scenes import committing, fetching
from tests.compat.differential.scenes.producing import produce

NAME = "phoenix"


def _delete(s: Scene) -> None:
    """Delete the topic and wait until nobody sees it."""
    s.peer.call(DeleteTopicsRequest(topic_names=[NAME], timeout_ms=10_000), 5)
    wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=NAME)])
    while s.peer.call(wanted, 12).topics[0].error_code != 3:
        pass


def _is_forgotten(s: Scene) -> bool:
    answer = s.peer.call(committing.fetch(s, "mourner", NAME), 9)
    return answer.groups[0].topics[0].partitions[0].committed_offset == -1


def _by_id(s: Scene, label: str, topic_id: bytes) -> None:
    request = produce("", batch())
    request.topic_data[0].topic_id = topic_id
    s.ask(f"produce by {label}", request, 13)
    wanted = fetching.fetch(s, NAME)
    wanted.topics[0].topic_id = topic_id
    s.ask(f"fetch by {label}", wanted, 13)
    row = MetadataRequest.MetadataRequestTopic(name=None, topic_id=topic_id)
    s.ask(f"metadata by {label}", MetadataRequest(topics=[row]), 12)
    commit = committing.commit(s, "mourner", NAME)
    commit.topics[0].topic_id = topic_id
    s.ask(f"commit by {label}", commit, 10)
    offsets = committing.fetch(s, "mourner", NAME)
    offsets.groups[0].topics[0].topic_id = topic_id
    s.ask(f"offsets by {label}", offsets, 10)


@scene
def a_topic_made_anew(s: Scene) -> None:
    coordinator(s)
    old = s.topic(NAME, 2)
    fetching.fill(s, NAME)
    _by_id(s, "its id", old)
    session = s.ask("open a session", fetching.fetch(s, NAME, session_epoch=0), 13).session_id
    _delete(s)
    while not _is_forgotten(s):
        pass  # offsets go with their topic, a moment later
    _by_id(s, "the id of a deleted topic", old)
    s.ask("offsets by name", committing.fetch(s, "mourner", NAME), 9)
    s.ask("all offsets", committing.fetch(s, "mourner"), 9)
    new = s.topic(NAME)
    _by_id(s, "the old id", old)
    _by_id(s, "the new id", new)
    s.ask("it is empty", fetching.fetch(s, NAME), 12)
    again = fetching.fetch(s, NAME, session_id=session, session_epoch=1)
    again.topics = []
    s.ask("the session of the old topic", again, 13)
    s.ask("ends", fetching.list_offsets(NAME, -1))
