"""One adapter per client. The order is the order of the table's columns."""
