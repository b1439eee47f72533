"""Every scene, by family of APIs. Importing this package fills `scene.SCENES`."""

from tests.compat.differential.scenes import (
    administering_groups,
    asking_for_tokens,
    committing,
    completing,
    configuring,
    fetching,
    grouping,
    looking,
    misbehaving,
    moving,
    offset_deltas,
    producing,
    recreating,
    topics,
    transacting,
    transactional_data,
)

__all__ = [
    "administering_groups",
    "asking_for_tokens",
    "committing",
    "completing",
    "configuring",
    "fetching",
    "grouping",
    "looking",
    "misbehaving",
    "moving",
    "offset_deltas",
    "producing",
    "recreating",
    "topics",
    "transacting",
    "transactional_data",
]
