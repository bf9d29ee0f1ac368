"""What a text says in disguise: base64, hexadecimal, percent signs, HTML entities, escapes.

For looking for what must not stand somewhere: whoever encodes a copy has copied it. Nothing here
makes a copy count as the text itself. Time and memory are linear in the text: a level of decoding
keeps only what can be read as text, and there are two levels.
"""

import binascii
import html
import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote

from schemas.look_alikes import visible

DEPTH = 2
"""How often an encoding may lie in another one."""
MIN_TEXT = 8
"""Characters in a row that can be read; decoding words that were never encoded gives fewer."""
_STANDARD = str.maketrans("-_", "+/")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{11,}")
_HEX = re.compile(r"[0-9a-fA-F]{16,}")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\})")
_READABLE = re.compile(rf"[^\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd]{{{MIN_TEXT},}}")


@lru_cache(maxsize=256)
def forms(text: str) -> tuple[str, ...]:
    """What is visible of the text, then what parts of it say when they are decoded."""
    found = dict.fromkeys([visible(text)])
    level = list(found)
    for _ in range(DEPTH):
        level = [form for one in level for form in _decoded(one) if form not in found]
        found |= dict.fromkeys(level)
    return tuple(found)


def _decoded(text: str) -> Iterator[str]:
    for spelt in (html.unescape(text), unquote(text), _ESCAPE.sub(_character, text)):
        if spelt != text:
            yield visible(spelt)
    # Lines may have been broken anywhere, and words may stand right before: every alignment.
    packed = "".join(text.split()).translate(_STANDARD)
    for run in _BASE64.findall(packed):
        for start in range(4):
            part = run[start:]
            yield from _readable(binascii.a2b_base64(part + "A" * (-len(part) % 4)))
    for run in _HEX.findall(packed.replace(":", "").replace("0x", "").replace(",", "")):
        for start in range(2):
            part = run[start:]
            yield from _readable(bytes.fromhex(part[: len(part) // 2 * 2]))


def _readable(content: bytes) -> Iterator[str]:
    for part in _READABLE.findall(content.decode("utf-8", "replace")):
        yield visible(part)


def _character(escape: re.Match[str]) -> str:
    number = int(next(digits for digits in escape.groups() if digits), 16)
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else escape[0]
