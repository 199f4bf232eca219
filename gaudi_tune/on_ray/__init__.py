"""Where Ray begins: the tuner, the one callback, starting Ray, and resuming.

Only this package knows Tune's files. What is private in a library stands in ``gaudi_tune/private``, where an
upgrade of Ray begins.
"""
