"""Topics as Spark writes them: the writing half of `format("headwater")`."""
