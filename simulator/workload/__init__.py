"""Scripted clients over the wire: each draws what it does from the seed and keeps the books."""
