"""The policies of a running sweep: which trial continues, waits, ends, saves or moves, and when the sweep ends early.

The policies read the record and return what should happen, which ``on_ray`` then does; the checkpoint budget alone acts
itself, on files. None of them knows Ray or the searcher.
"""
