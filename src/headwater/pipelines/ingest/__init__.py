"""One topic into one table, in one line."""
