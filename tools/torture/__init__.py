"""Torture: what the journal promises, checked by breaking things around it."""
