"""Keys and values of records: `values` is the table of types, `formats` the list of formats (`codec` is JSON), and
`schemas` that of the kinds of schemas.

`key` has the bytes that are hashed.
"""
