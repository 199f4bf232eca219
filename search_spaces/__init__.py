"""Where to search: one module per model with the space, the baseline, and where each range comes from."""
