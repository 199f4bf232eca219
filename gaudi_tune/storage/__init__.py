"""Storage elsewhere: an object store or another file system that has a copy of each sweep, made beside the training.

:mod:`.remote` reads and writes there, :mod:`.mirror` brings a running sweep there, :mod:`.fetch` brings sweeps back.
"""
