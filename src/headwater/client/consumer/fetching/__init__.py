"""Prefetching from the brokers: requests, sessions, and fetched records."""
