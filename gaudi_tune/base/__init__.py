"""What every other room may use: names of metrics, words for people, files written whole, caches and versions.

Imports nothing else of this project.
"""
