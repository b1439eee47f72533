"""A ZooKeeper server in one process: the embedded store behind ZooKeeper's own wire protocol.

`headwater store` runs it, so that a cluster needs nothing installed and its brokers reach either
store through one client, kazoo. It has one disk and no replicas: production runs on a ZooKeeper
ensemble.
"""
