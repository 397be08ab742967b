"""SELECT, whatever its dialect: what its names mean and what it gives."""
