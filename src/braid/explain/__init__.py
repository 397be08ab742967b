"""Plans as data, text and pictures."""
