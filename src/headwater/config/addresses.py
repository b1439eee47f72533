"""Checks broker addresses: HOST:PORT, with IPv6 in brackets."""


def address_problem(text: str) -> str | None:
    """Why `text` is not an address of a broker; None if it is one."""
    if "://" in text:
        return f"{text!r} has a protocol in front: write {text.partition('://')[2]!r}"
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdigit()):
        return f"{text!r} is not HOST:PORT"
    return None if 0 < int(port) < 65536 else f"the port of {text!r} is not 1 to 65535"


def metrics_problem(text: str) -> str | None:
    """Why `text` cannot be metrics.listener, which may be empty or have port 0; None if it can."""
    return address_problem(text) if text and not text.endswith(":0") else None


def addresses_problem(texts: tuple[str, ...]) -> str | None:
    """Why `texts` cannot be bootstrap.servers; None if they can."""
    if not texts:
        return "it takes at least one HOST:PORT"
    return next((problem for problem in map(address_problem, texts) if problem), None)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to the address."""
    return host in ("localhost", "::1") or host.startswith("127.")
