"""The warm worker group: the trial actor, its workers with a mailbox each, and how a group fails.

``clean/`` makes each trial begin as in a new process. To a group, a trial is a configuration for a train loop. It knows
no model, and of the sweep only the option that its messages name (``--retries``).
"""
