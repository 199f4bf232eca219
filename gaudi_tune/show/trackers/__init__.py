"""Trackers keep the runs of a sweep outside of it, to be compared with others. MLflow is the one that is here.

``tracker.py`` says what a tracker is, and names those that there are: another one is a file beside it and a line there.
All other files are MLflow's.
"""
