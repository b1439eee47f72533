"""Transactions: brokers beside Apache Kafka, clients beside librdkafka, isolation levels."""
