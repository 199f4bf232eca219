"""A stand-in for Intel's habana_frameworks, for machines without a Gaudi: put ``tests/stand_in`` on PYTHONPATH.

Ray then finds eight HPUs by itself, and torch imports it. Tensors of "hpu" are computed on the CPU; what is strict is
the rest (``_hardware.py``): a module has one owner, a killed owner leaves it busy for a while, and neither a forked
child nor a process of Ray that was given no module gets one.
"""
