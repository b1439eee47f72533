"""Record batches: the format in which clients send, brokers store and consumers read.

A pure format: buffers and numbers go in, buffers and numbers come out. Nothing here knows a file,
a socket or a clock. On the hot path (`validation.check_batch`, `batch.assign`) no object is made
per record; where records must be touched, every count and length is bounded by the bytes at hand.
"""
