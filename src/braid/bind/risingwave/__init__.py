"""What RisingWave's statements mean: bound to the plan nodes that all dialects share, or answered by DuckDB."""
