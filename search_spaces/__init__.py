"""The search spaces: a module for each model with its space, its baseline, and the source of each range."""
