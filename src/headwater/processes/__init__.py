"""Brokers and stores as child processes, for `headwater up --brokers` and for tests."""
