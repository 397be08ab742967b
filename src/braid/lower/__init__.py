"""From what a query means to how it runs."""
