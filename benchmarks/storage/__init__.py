"""Measures what storage does besides appending: compaction, syncing, indexes, verification."""
