"""Clients: one core with an asyncio and a blocking face.

Pure machines (accumulator, sequences, membership, assignors) decide; `*_loop` files do the I/O over
`transport`. This package does not import the broker's packages.
"""
