"""Whole logs as files: archives, audits, replays, and Spark over segment files."""
