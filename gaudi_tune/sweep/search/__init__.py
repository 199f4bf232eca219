"""Search: which configurations to try. Tune asks a searcher, which asks a sampler and keeps the books of its study."""
