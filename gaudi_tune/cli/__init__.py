"""The command line of every script, and the command ``gaudi-tune``, which also shows earlier sweeps."""
