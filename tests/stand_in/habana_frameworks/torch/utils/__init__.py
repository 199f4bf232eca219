"""Tools around the bridge."""
