"""The limit of open files of this process."""

import resource

USUAL_OPEN_FILES = 65_536
MOST_OPEN_FILES = 1 << 20
"""Linux refuses a limit above fs.nr_open, which is this; "unlimited" is read as this."""


def raise_open_file_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return soft
        return wanted
    return MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else soft
