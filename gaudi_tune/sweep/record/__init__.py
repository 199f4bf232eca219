"""The record of a sweep: its trials, its best, its device time and what it began with, in memory and on disk.

Events alone change the state, and ``on_ray`` makes them; everything else reads it. The searcher books reports and ends
of trials a second time, in the study that its sampler learns from.
"""
