"""Look-ups: what a reader may ask of one journal, and everything that is found out by asking.

`questions` is the contract. `events` and `transactions` answer it from a database's indexes; exported files
have an answer of their own (journal/export/lookup.py). All other modules here ask through the contract alone.
"""
