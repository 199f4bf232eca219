"""Callbacks that report from other libraries' trainers: one module for each, which imports its library.

A callback may be changed alone: nothing else in this project imports this folder, and it knows ``training.session``
alone.
"""
