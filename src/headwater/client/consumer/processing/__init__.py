"""`Consumer.process`: parallel work on records, in order where order matters."""
