"""The partitioned log: whole batches in files, and indexes to find them.

This package decodes no records (except to search by time), does not know replicas or clients, and
touches files only through `seams.Files`, never outside the log's own folder.
"""
