"""Runs pipelines: flows as streaming queries, with expectations, checkpoints, progress and lag."""
