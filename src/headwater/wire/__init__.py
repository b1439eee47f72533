"""The Kafka protocol as bytes: pure, without sockets, clocks or state."""
