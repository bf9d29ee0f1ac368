"""How deep JSON text nests, found without decoding it: decoders recurse."""


def nesting(text: bytes) -> int:
    """Deepest nesting of objects and arrays in JSON text (UTF-8), strings skipped. Linear."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in text:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in (0x7B, 0x5B):
            depth += 1
            deepest = max(deepest, depth)
        elif byte in (0x7D, 0x5D):
            depth -= 1
    return deepest
