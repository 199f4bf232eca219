"""HPU, CUDA and CPU behind one interface, monitors of devices and hosts, and tools that inspect a node.

``device`` defines the interface and ``worker_side`` the part of it that workers use; ``hpu``, ``cuda`` and ``cpu``
implement it, and ``find`` lists them. A new kind of device is one file here and a line in ``find``. No module but
``hpu`` imports habana, and ``hpu`` only inside functions.
"""
