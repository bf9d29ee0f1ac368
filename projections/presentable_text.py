"""Words of a system under test on their way into tables and reports: bounded, and free of secrets.

What looks like a secret (``schemas/secret_shapes.py``) is replaced as a whole: it reaches no table,
no report and no file made from them.
"""

from schemas.secret_shapes import secret_kinds

MAX_TEXT = 2_000


def presentable(text: str, limit: int = MAX_TEXT) -> str:
    """The text, cut at ``limit`` characters; nothing of one that looks like a secret."""
    kinds = secret_kinds(text)
    if kinds:
        return f"[not shown: it looks like {', '.join(kinds)}]"
    return text if len(text) <= limit else f"{text[:limit]}\u2026 ({len(text)} characters)"
