"""Callbacks that report from other libraries' trainers. Each module imports its library.

Nothing else in this project imports this folder. It uses ``training.session``, the names of metrics, and what is
private in a library.
"""
