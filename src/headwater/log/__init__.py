"""The partitioned log: whole batches in files, and indexes to find them.

Nothing here decodes records (but for a search by time), knows a replica or a client, or touches a
file except through `seams.Files`; no path leaves the log's own folder.
"""
