"""Python clients beside each other."""
