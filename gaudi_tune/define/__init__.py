"""What a user writes and asks for: experiment, search space, objective, budget, options and errors.

Imports nothing else of a sweep. A field added here is an option of every script and an argument of ``build_tuner()``.
"""
