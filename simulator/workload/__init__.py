"""Scripted clients over the wire: each draws its actions from the seed and records promises."""
