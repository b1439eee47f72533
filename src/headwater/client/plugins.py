"""Objects that the caller gives a client: serializers, partitioners, interceptors, assignors.

Kafka's hooks, where an object has them: `configure(settings)` is called once when the client is
created, `close()` once when the client closes. What `configure` raises reaches the caller; what
`close` raises is logged, because the client must close all the same.
"""

import logging

from headwater.config.client import ClientSettings

log = logging.getLogger(__name__)


class Plugins:
    """The plug-ins of one client, each once, in the order given."""

    def __init__(self, settings: ClientSettings, *given: object) -> None:
        self._open = list({id(one): one for one in given if one is not None}.values())
        for one in self._open:
            configure = getattr(one, "configure", None)
            if callable(configure):
                configure(settings)

    def close(self) -> None:
        """Call the hook of each plug-in that has one; a second call does nothing."""
        plugins, self._open = self._open, []
        for one in plugins:
            close = getattr(one, "close", None)
            if callable(close):
                try:
                    close()
                except Exception:
                    log.exception("close() of %s raised", type(one).__name__)
