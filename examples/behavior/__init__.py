"""The reference pipeline: what people do in a shop, from the first event to the last chart."""
