"""Callbacks that report from other libraries' trainers: one module for each, which imports its library.

A callback may be changed alone. Nothing else in this project imports this room, and it knows ``runtime`` alone.
"""
