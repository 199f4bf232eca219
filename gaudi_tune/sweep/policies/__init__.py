"""The policies of a running sweep: which trial continues, waits, ends, saves or moves, and when the sweep ends early.

The schedulers answer Tune after each report, and tell the searcher which trials wait. The other policies read the state
and return what should happen, which ``on_ray`` then does; the checkpoint budget alone acts itself, on files.
"""
