"""Development tools: jars, other brokers to compare with, generators, checks, chaos runs."""
