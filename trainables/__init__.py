"""What is trained: one module per model, and in :mod:`trainables.runtime` what all of them share."""
