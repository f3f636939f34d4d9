"""Measurements: seeded, with their environment, of the cache as a scheduler calls it."""
