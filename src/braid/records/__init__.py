"""Keys and values of records: `values` is the table of types, by which each format reads and writes; a module a format.

`codec` is JSON, `delimited` is DELIMITED; `key` has the bytes that are hashed.
"""
