"""Transactions of each client, in a program of its own that answers requests (`LineServer`)."""
