"""Texts that look alike: letters of other scripts, widths, marks and characters that nobody sees.

Unicode's table of confusables (UTS #39) is not in the standard library. What is here is its part
that matters for names and key words: Cyrillic and Greek letters that are drawn as Latin ones.
"""

import re
import unicodedata

_DRAWN_ALIKE = (
    "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445"
    "\u0456\u0458\u0455\u0501\u051b\u051d\u04bb\u04cf\u0251\u03bf\u03b1\u03b5"
    "\u03c1\u03c5\u03b9\u03bd\u03c4\u03ba\u0475\u0261"
)
_CONFUSABLE = str.maketrans(_DRAWN_ALIKE, "abekmhopctyxijsdqwhlaoaepyivtkvg")
_ONE_STROKE = str.maketrans("1l0", "iio")
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Of Unicode's default ignorables those that are no format characters."""
_EAST_ASIAN = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "KATAKANA-HIRAGANA"}


def visible(text: str) -> str:
    """``text`` in compatibility form (NFKC), without what nobody sees: format characters, fillers,
    selectors."""
    if text.isascii():
        return text
    composed = unicodedata.normalize("NFKC", text)
    return "".join(
        char
        for char in composed
        if unicodedata.category(char) != "Cf" and not _UNSEEN.fullmatch(char)
    )


def latin_form(text: str) -> str:
    """What is visible of ``text``, with Latin letters for those that are drawn like them. For
    looking for words; what is kept is the text as it was."""
    seen = visible(text)
    return seen if seen.isascii() else "".join(map(_latin, seen))


def _latin(char: str) -> str:
    lowered = char.lower()
    mapped = lowered.translate(_CONFUSABLE)
    if mapped == lowered:
        return char
    return mapped if char == lowered else mapped.upper()


def as_it_looks(text: str) -> str:
    """What is the same for texts that nobody tells apart by looking: without case, invisible
    characters, spaces around it and doubled ones, in Latin letters where others are drawn so."""
    return " ".join(latin_form(text).casefold().split())


def same_person(one: str, other: str) -> bool:
    """Whether nobody could tell the two names apart by looking: case, spaces, punctuation, accents,
    order of their words, and look-alike letters make no difference. A name without any letter or
    digit is nobody's, and so everybody's."""
    left, right = _words(one), _words(other)
    return not left or not right or "".join(left) == "".join(right) or sorted(left) == sorted(right)


def _words(name: str) -> list[str]:
    decomposed = unicodedata.normalize("NFKD", latin_form(name).casefold())
    kept = "".join(
        _latin(char) if unicodedata.category(char)[0] in "LN" else " "
        for char in decomposed
        if unicodedata.category(char)[0] != "M"
    )
    return kept.translate(_ONE_STROKE).split()


def scripts(text: str) -> set[str]:
    """Scripts of its letters, as their names in Unicode begin; East Asian ones count as one."""
    letters = (char for char in unicodedata.normalize("NFKC", text) if char.isalpha())
    found = {unicodedata.name(char, "UNNAMED").split()[0] for char in letters}
    return {"EAST ASIAN" if name in _EAST_ASIAN else name for name in found}
