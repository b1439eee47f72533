"""Consumer groups: membership, assignments and committed offsets. Pure: no clock, disk or network."""
