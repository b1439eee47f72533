"""What a pipeline is made of, and what is wrong with it before Spark starts."""
