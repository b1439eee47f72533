"""Who may do what: principals, access rules, and later credentials and quotas. Never sockets."""
