"""MLflow: what it is told of a sweep, and how that gets there whatever happens."""
