"""ksqlDB's own statements."""
