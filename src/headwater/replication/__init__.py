"""Replicas of partitions: leadership, the high watermark, and requests that wait for it.

`partition` and `isr` are pure state machines; `replica` and `replicas` connect them to a log. Nothing
here uses sockets, tasks or the event loop.
"""
