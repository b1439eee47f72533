"""Events from browsers and files into topics."""
