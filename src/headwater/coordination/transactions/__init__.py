"""Transactions as one partition of `__transaction_state` sees them: pure commands and replay."""
