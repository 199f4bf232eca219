"""The contract between any train loop and its caller: what it is given, reports and saves, and how a trial begins.

``session`` is where a loop begins; ``trial_config`` has the class of its configuration.
"""
