"""Decoupling: who writes a topic does not know who reads it. See `__main__.py`."""
