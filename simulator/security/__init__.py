"""Simulated clusters whose clients log in: their rights, users and quotas change, and strangers try."""
