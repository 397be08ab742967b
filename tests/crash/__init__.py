"""`braid run` killed in every way there is, and started again until it is done."""
