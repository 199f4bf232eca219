"""Remote storage: an object store or another file system that gets a copy of each sweep while it trains.

:mod:`.remote` reads and writes it, :mod:`.mirror` copies a running sweep to it, and :mod:`.fetch` brings sweeps back.
"""
