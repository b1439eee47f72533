"""Delta, Iceberg and Parquet tables, written by Spark exactly once.

Spark's JVM writes the files of a batch into the table's folder where no reader looks; then one
atomic commit into the table's log names them together with "batch N of application A". Nothing here
counts rows or sends them through Python.
"""
