"""What encryption, logins, access rights and quotas cost, beside Apache Kafka with the same listeners."""
