"""Replicas of partitions: who leads, what is committed, who waits for it.

`partition` and `isr` are pure machines; `replica` and `replicas` put them over a log. Nothing here knows sockets, tasks or the event loop.
"""
