"""The record of a sweep: its trials, its best, its device time and what it began with, in memory and on disk.

Events alone change the state, and ``on_ray`` makes them; everything else reads it. The study, from which samplers
learn, follows from it, and so do the summary, the page and MLflow.
"""
