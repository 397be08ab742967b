"""Keys and values of records: `values` is the table of types, `formats` that of formats, of which each has a module.

`codec` is JSON, `delimited` is DELIMITED; `key` has the bytes that are hashed.
"""
