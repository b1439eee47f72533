"""Membership in a consumer group: joining, heartbeats, assignments, committed offsets."""
