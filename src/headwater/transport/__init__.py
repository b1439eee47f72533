"""Bytes over streams: the server end (`frame_protocol`, `listener`) and the client end (`client_connection`).

This room knows frames, buffers and back-pressure; it never looks inside a message.
"""
