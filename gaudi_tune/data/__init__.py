"""Loads the samples of trials: text and images, from users' own files, from the hub, or made offline, for the recipes alone."""
