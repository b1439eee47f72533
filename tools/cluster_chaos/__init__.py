"""Real faults under a cluster of three brokers: `python -m tools.cluster_chaos`."""
