"""The schedulers: which trial continues, waits or ends after a report."""
