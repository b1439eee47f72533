"""The writing half of `format("headwater")`."""
