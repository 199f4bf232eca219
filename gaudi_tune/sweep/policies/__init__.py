"""What goes on and what ends: search, schedulers, stopping rules and checkpoints.

Each part reads the state and returns a decision with its reason. No part knows another one, or anything in ``show``.
"""
