"""What every other folder may use, such as names of metrics, words for people, atomic writing of files and versions.

These modules import nothing else of this project.
"""
