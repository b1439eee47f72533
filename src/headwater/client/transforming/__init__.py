"""`transform`: consume, process and produce in one transaction, in two faces."""
