"""The warm worker group: the trial actor, its workers with a mailbox each, and how a group fails.

Knows nothing of models or of the sweep: a trial is a configuration for a train loop.
"""
