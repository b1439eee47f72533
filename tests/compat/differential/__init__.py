"""The same requests to Apache Kafka 4.3.1 and to Headwater, and the answers held side by side.

A scene (`scenes/`) is a list of requests with the state they need; it runs once on each broker and
leaves a transcript. `plain` takes out of an answer what must differ; `intended` is the one table
of what may.
"""
