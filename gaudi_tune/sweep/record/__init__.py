"""What is true of a sweep: its trials, its best, its device time, and whether it runs; and the log of it on disk.

The state changes by events, which ``on_ray`` makes. Everybody else reads it. A fact that is kept anywhere else is a
bug.
"""
