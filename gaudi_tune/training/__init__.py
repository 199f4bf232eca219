"""The training loop that all models share, its parts, and the contract between any train loop and its caller.

The parts are configuration, loading, schedules, metrics, checkpoints and fresh starts. A model may use all of it
(``loop.train``), some of it, or none; every train loop uses ``session``.
"""
