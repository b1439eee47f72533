"""Collects events from browsers and log files into topics."""
