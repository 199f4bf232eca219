"""What is true of a sweep: its trials, its best, its device time, and whether it runs; and the log of it on disk.

One writer, ``on_ray.sweep_run``; everybody else reads. A fact that is kept anywhere else is a bug.
"""
