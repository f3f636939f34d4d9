"""Real models on the pools: decoder models of transformers whose layers mix full and sliding attention.

The model's own modules do the arithmetic. This package gives them a cache whose KV lies in kvledger's pools,
plays the forward pass of the reference scheduler with it, and compares what comes out with the same model
run alone. It builds models from configurations with seeded random weights; nothing is downloaded.
"""
