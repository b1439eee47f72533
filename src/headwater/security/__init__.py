"""Principals, access rights and the interfaces of authorizer and quotas. Uses no sockets."""
