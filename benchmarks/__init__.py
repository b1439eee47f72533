"""Benchmarks: `micro` per module, `load` against any server that speaks the Kafka protocol."""
