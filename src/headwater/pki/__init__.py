"""A small certificate authority for brokers and clients, created with the `openssl` command."""
