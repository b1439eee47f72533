"""Converts schemas of records to columns of Spark."""
