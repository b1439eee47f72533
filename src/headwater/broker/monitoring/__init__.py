"""What a broker tells Prometheus: the table of its metrics, what reads them, and the HTTP listener."""
