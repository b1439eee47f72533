"""Topics as Spark reads them: the reading half of `format("headwater")`."""
