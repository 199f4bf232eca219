"""Parts of the bridge that its own tests use."""
