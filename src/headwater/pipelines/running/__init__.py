"""A pipeline at work: flows as streaming queries, what they refuse, how far they are."""
