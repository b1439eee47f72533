"""Loads and checks a pipeline's declarations before Spark starts."""
