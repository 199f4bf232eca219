"""Trackers keep the runs of a sweep outside of it, where people compare them with others. MLflow is the only one.

``tracker.py`` defines what a tracker is, and lists the trackers: another one is a file here and an entry there. All
other files are MLflow's.
"""
