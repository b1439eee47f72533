"""Headwater's clients, as an application uses them: the same tests on Headwater and Apache Kafka.

What a test needs beside the client under test (records to read, records to look at) comes from
confluent-kafka, so that no test trusts one half of our clients to judge the other.
"""
