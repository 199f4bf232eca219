"""What is trained: one module per model, and in :mod:`gaudi_tune` what all of them share."""
