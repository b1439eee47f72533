"""Works on segment files: archives, audits, replays, and a Spark source."""
