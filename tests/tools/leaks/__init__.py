"""What a trial leaves behind in its worker, and what becomes of it."""
