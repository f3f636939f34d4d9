"""Reading a journal wherever it is kept: opening it, and following it while it grows."""
