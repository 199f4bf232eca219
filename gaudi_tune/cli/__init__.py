"""The command line of every script, and the command ``gaudi-tune`` with its look at earlier sweeps."""
