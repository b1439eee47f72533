"""`Consumer.process`: parallel work on records, in order per key or partition."""
