"""Where Ray begins: the tuner, the one callback, starting Ray, and resuming.

Only this package knows Tune's files. What is private in a library stands in ``trainables/runtime/internals``, where an
upgrade of Ray begins.
"""
