"""Simulates scheduler, cache, journal and store in one thread, with faults: docs/torture.md."""
