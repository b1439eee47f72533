"""Crash images: the storage code, stopped at every file operation and started again."""
