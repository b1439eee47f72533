"""Compaction: rewrites the sealed segments of a log so that the last value of each key remains.

`passes` cleans a log in passes over its files, in a worker process (`worker`); `key_map` is its
memory of keys, `cleaned_batches` and `cleaned_transactions` decide what remains of a batch. The
broker chooses the dirtiest log (`dirtiness`) and swaps the new files in (`LogSegments.replace`).
"""
