"""The pictures of a sweep and its report, drawn while it runs."""
