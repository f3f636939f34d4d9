"""How long work tells how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Hears what is counted, how many of it are done, and of how many in all."""
