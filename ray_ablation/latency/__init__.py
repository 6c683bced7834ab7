"""Isolated latency profiles: ratios by interleaving, absolutes only with a verdict.

plan.py         which encoders are profiled, the profile's id, the units of work
profile.py      the phase: hold a node, run the units, write latency.json (its schema is there)
lease.py        holds a node and starts one fresh child process at a time
guards.py       read-only counters of host and GPU: who else is busy?
child.py        the measured process, start to exit
measure.py      what it does in between: warm up, interleave, time
inputs.py       texts of exactly N tokens
canary.py       a fixed small encoder that tells the machine's speed
environment.py  what the machine and the libraries were
estimate.py     estimators, pure
verdict.py      limits, and what may be said of a figure
summary.py      samples to latency.json, pure
"""
