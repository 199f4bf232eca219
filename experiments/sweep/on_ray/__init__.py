"""Where Ray begins and ends: the tuner, the one callback, resuming, and every private surface of a library.

Only this package knows Tune's files and Ray's internals. An upgrade of Ray is an edit here.
"""
