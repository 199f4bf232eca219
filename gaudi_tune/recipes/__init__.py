"""What the six recipes share, and what a model of your own may use: the training loop with its parts.

It stands on the engine, which never imports it. ``loop.train`` begins; ``training_config`` has its settings, and
:mod:`gaudi_tune.data` is where samples come from.
"""
