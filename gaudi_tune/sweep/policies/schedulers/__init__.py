"""The schedulers: which trial goes on, waits or ends."""
