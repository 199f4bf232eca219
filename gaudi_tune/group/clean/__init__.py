"""What makes each trial begin as in a new process: its own code, global switches, and the end of what a trial left."""
