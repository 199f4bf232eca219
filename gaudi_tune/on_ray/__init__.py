"""The sweep on Ray Tune: the tuner, Tune's callbacks and scheduler, the start of Ray, and resuming.

``given/`` takes Ray's own objects from the user. Only this package and ``gaudi_tune/private`` know Tune's files. The
latter has everything that is private in a library: an upgrade of Ray begins there.
"""
