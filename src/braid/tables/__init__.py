"""Tables that lie elsewhere, as the table side of joins: they are looked at, and what changed becomes records."""
