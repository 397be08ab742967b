"""Tables as they stand, and queries over them."""
