"""What every other folder may use: names of metrics, words for people, atomic writing of files, caches and versions.

These modules import nothing else of this project.
"""
