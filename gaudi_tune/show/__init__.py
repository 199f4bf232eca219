"""Everything that people see: the terminal, the summary, the pictures and the trackers.

Each part reads the state of the sweep and does not change it. The live page forwards what a person asks of the sweep,
and the trackers write to their servers. An error here is logged, and the sweep goes on.
"""
