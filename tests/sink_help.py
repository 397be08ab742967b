"""What tests of sinks have in common: changes of a result batch by batch, statements, runs that are killed."""
