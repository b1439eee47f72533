"""The reading half of `format("headwater")`."""
