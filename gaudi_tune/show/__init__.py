"""What people see: the terminal, the summary, the pictures and the trackers.

Each part reads the state and changes nothing. An error here is logged, and the sweep goes on.
"""
