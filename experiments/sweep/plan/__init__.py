"""Before a worker starts: decide what runs, check that it can, and join the cluster.

``decide`` is pure. ``check`` reads files, stores and servers. Neither touches a device.
"""
