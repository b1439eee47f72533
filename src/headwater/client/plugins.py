"""Plug-ins of a client: serializers, partitioners, interceptors, assignors.

If a plug-in has Kafka's hooks, `configure(settings)` is called once when the client is created, and
`close()` once when the client closes. An error of `configure` reaches the caller; an error of
`close` is logged, because the client must close in any case.
"""

import logging

from headwater.config.client import ClientSettings

log = logging.getLogger(__name__)


class Plugins:
    """The distinct plug-ins of one client, in the given order."""

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
