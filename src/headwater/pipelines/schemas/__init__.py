"""Schemas of records as columns of Spark."""
