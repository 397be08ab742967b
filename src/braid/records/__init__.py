"""Keys and values of records: texts into typed columns and back."""
