"""Bugs in a client's background work: logged with their traceback, and raised by the next call."""

import logging

from headwater.client.errors import LoopDiedError

log = logging.getLogger(__name__)


def internal_error(where: str, fault: BaseException) -> LoopDiedError:
    """Log `fault`; the error for the call that depends on the work it stopped."""
    log.error("internal error of the client in %s", where, exc_info=fault)
    error = LoopDiedError(f"internal error of the client in {where}: {fault!r}")
    error.__cause__ = fault
    return error
