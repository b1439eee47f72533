"""Every scene, by family of APIs. Importing this package fills `scene.SCENES`."""

from tests.compat.differential.scenes import (
    fetching,
    producing,
)

__all__ = ["fetching", "producing"]
