"""URLs of documents in settings: of an identity provider, or of a file."""

from urllib.parse import urlsplit


def url_problem(url: str) -> str | None:
    """Return why a document cannot be read from `url`; None if it can."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as wrong:
        return f"it is not a URL: {wrong}"
    if any(char.isspace() or not char.isprintable() for char in url):
        return "it has characters that a URL cannot have"
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            return "a file is written as file:///path/of/the/file"
        return None
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return "it takes https://HOST/PATH, http://HOST/PATH or file:///PATH"
    if parts.username is not None or parts.password is not None:
        return "a URL with a password would be logged: remove what is before the @"
    return None
