"""What the five recipes share, and what a model of your own may use: the training loop with its parts, and the data.

It stands on the engine, which never imports it. ``loop.train`` begins; ``training_config`` has its settings, and
``data`` is where samples come from.
"""
