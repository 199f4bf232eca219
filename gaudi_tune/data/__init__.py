"""Loads the samples of the recipes' trials: text and images, from users' own files, from the hub, or made offline."""
