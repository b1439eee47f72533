"""A ZooKeeper server in one process: the embedded store behind ZooKeeper's own wire protocol.

`headwater store` runs it, so that a development cluster needs no ZooKeeper installation; brokers use the
same client, kazoo, for both. It has one disk and no replicas: in production, run a ZooKeeper ensemble.
"""
