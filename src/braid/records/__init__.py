"""Keys and values of records: `values` is the table of types, `formats` that of formats (`codec` is JSON).

`key` has the bytes that are hashed.
"""
