"""Load on our broker, on Apache Kafka and on a minimal C server, side by side in one run.

What decides is ratios: each round gives every server the same load within seconds, and a figure
is the median of the rounds' ratios with their spread. Rates of a shared machine mean little.

`python -m benchmarks.load` runs everything; `cases.py` is the table of loads, `targets.py` says
what each must reach, `c/` holds the generator and the reference server.
"""
