"""What mkdocs calls: links to files outside of `docs` become plain text on the site.

On the repository's own pages such links lead to examples and code; the site has none of these.
`tests/clients/test_docs.py` checks that they lead somewhere.
"""

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#:]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Unlink what is outside."""
    folder = posixpath.dirname(page.file.src_uri)

    def text_of(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        return f"`{target.lstrip('./')}`" if target.startswith("..") else link[0]

    return _LINK.sub(text_of, markdown)
