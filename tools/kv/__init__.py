"""KV that says what it was made for, and the check that reads it back through the pool."""
