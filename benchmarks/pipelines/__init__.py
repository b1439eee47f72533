"""How fast Spark reads and writes through Headwater, beside what Spark has of its own."""
