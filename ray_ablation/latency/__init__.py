"""Isolated latency profiles: ratios by interleaving, absolutes only with a verdict.

plan.py         which encoders are profiled, the profile's id, the units of work
profile.py      the phase: hold a node, run the rounds, write latency.json (schema in summary.py)
rounds.py       rounds of units until the figures are tight
record.py       a profile in the ledger: is it there, is it what the grid asks?
lease.py        holds a node and starts one fresh child process at a time
process.py      one child: limit, kill, how it ended
guards.py       read-only counters of host and GPU: who else is busy?
nvml.py         those of the GPU
child.py        the measured process, start to exit
conditions.py   the state it is measured in: controlled, or as met in the wild
measure.py      what it does in between: warm up, interleave, staged calls
timing.py       one timed call
variant.py      an encoder ready to be timed
device.py       how long the device itself is busy, and with which kernels
inputs.py       texts of exactly N tokens
canary.py       a fixed small encoder that tells the machine's speed
environment.py  what the machine and the libraries were
samples.py      columns of the raw samples
estimate.py     estimators, pure
shape.py        levels and modes of one process's calls, pure
stalls.py       calls that stall, and what they follow, pure
verdict.py      limits, and what may be said of a figure
cell.py         one encoder at one length, all that is said of it
summary.py      samples to latency.json, pure
frame.py        a study's latency as a frame
diagnose.py     the root-cause study: python -m ray_ablation.latency.diagnose GRID
factors.py      what may move a latency
design.py       which runs tell factors apart, and their effects, pure
diagnosis.py    what the runs say, in figures and words, pure
"""
