"""The metadata store: ZooKeeper's tree of nodes, as an interface and as files of this broker."""
