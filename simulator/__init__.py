"""Whole brokers in one thread: simulated time, disk, network and threads, all drawn from one seed.

A seed gives the same run on any machine, to the last byte: nothing here may read a real clock, a
real disk, the order of a set, or the address of an object. Only tests and tools import this room.
"""
