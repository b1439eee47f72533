"""A small certificate authority for brokers and clients, made with the `openssl` command."""
