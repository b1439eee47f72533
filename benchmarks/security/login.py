"""Who logs in to the secured listeners; alone, since a client that is measured loads it too."""

USER, PASSWORD = "alice", "of the benchmark"
