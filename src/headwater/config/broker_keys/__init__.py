"""The rows of a broker, one table per subject. `config/broker.py` puts the tables together.

A row whose key has no effect yet says so.
"""
