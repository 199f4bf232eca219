"""Search: which configurations to try. Tune asks a searcher, and the searcher asks a sampler.

The sampler learns from the study, which the sweep keeps up with its record.
"""
