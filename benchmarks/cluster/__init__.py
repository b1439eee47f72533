"""Clusters of three brokers: ours beside Apache Kafka's, and what only ours is asked for.

`python -m benchmarks.cluster` prints one table; `__main__.py` lists the cases.
"""
