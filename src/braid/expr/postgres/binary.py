def bytea_of_text(v: str) -> bytes:
    return bytes.fromhex(v[2:]) if v.startswith("\\x") else v.encode()
