"""What a running broker tells about itself: log lines for people, numbers for Prometheus.

Nothing here may slow a request down or let a peer write into a terminal: counting is one integer
addition, and every logged text is escaped and cut.
"""
