"""Runs whole brokers in one thread, on simulated time, disks, networks and threads, from one seed.

A seed gives the same run on any machine, to the last byte: this package must not read a real clock,
a real disk, the order of a set, or the address of an object. Only tests and tools import it.
"""
