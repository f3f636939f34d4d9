"""Answers: what each route tells of a replayed state, one file an answer. Nothing here changes a state."""
