"""Bytes over streams: the server end (`inbound`, `listener`) and the client end (`connection`).

This room knows frames, buffers and back-pressure; it never looks inside a message.
"""
