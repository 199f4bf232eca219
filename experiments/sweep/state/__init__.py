"""What is true of a sweep: its trials, its best, its device time, and whether it runs.

One writer, ``on_ray.sweep_run``; everybody else reads. A fact that is kept anywhere else is a bug.
"""
