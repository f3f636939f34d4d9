"""The cache inside schedulers that others wrote."""
