"""Asynchronous work: a request answers before the slow step. See `__main__.py`."""
