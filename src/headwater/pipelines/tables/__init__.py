"""Tables of three kinds, Delta, Iceberg and Parquet, written by Spark exactly once.

Spark's JVM writes the files of a batch, unseen, into the table's folder; then one atomic commit
into the table's own log names them together with "batch N of application A". Nothing here counts
rows, or sends them through Python.
"""
