"""HPU, CUDA and CPU behind one interface, what monitors them, and the tools that look at a node.

``device`` says what a kind of device must answer; ``hpu``, ``cuda`` and ``cpu`` answer it, and ``find`` names them. A
new kind is one file here and a line in ``find``. Only ``hpu`` imports habana, inside functions.
"""
