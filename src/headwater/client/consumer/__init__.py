"""The consumer: reads records, alone or as a member of a group."""
