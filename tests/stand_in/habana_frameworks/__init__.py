"""A stand-in for Intel's habana_frameworks, for machines without a Gaudi: put ``tests/stand_in`` on PYTHONPATH.

Ray then finds eight HPUs by itself. Tensors that are moved to "hpu" stay on the CPU and are computed there; what is
strict is the rest (``_hardware.py``): a module has one owner, a killed owner leaves it busy for a while, and neither a
forked child nor a process of Ray that was given no module gets one.
"""
