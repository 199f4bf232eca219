"""Collectives between HPUs."""
