"""The training loop that all models share, and its parts: loading, schedules, metrics, checkpoints, fresh starts.

A model may use all of it (``loop.train``), some of it, or none.
"""
