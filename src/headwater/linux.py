"""Refuses other systems when it is imported: files, pages and sockets use calls that only Linux has."""

import sys

if sys.platform != "linux":
    raise ImportError(
        f"Headwater runs on Linux and this is {sys.platform}; use a Linux machine, a container or WSL 2"
    )
