"""What the cases of this folder call: see tidegate.toml."""


def hex_to_int(text: str) -> int:
    """The whole number that a text is in hexadecimal."""
    return int(text, 16)
