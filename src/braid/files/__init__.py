"""Files as inputs of a query, and folders of results."""
