"""A micro-batch, from cutting to results, as every runtime does it."""
