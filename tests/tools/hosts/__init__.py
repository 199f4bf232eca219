"""Sweeps over several hosts, each with its own network, files and clock: ``python -m tests.tools.hosts``."""
