"""How other people's clients log in: every client takes every way in, on one broker with a listener for each.

`ways.py` has the rows of the table, `python_clients.py` and `programs.py` its columns. A new mechanism is a row in
`ways.py`, a listener or a setting in `secured_broker.py`, and what the clients have to be told in their `_settings`.
"""
