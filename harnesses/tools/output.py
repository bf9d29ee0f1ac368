"""How a tool's text is built: limits in estimated tokens, and a fence around repository text.

Our own words (counts, what was left out, errors) stand outside the fence, what a repository says
stands inside, and no file can close the fence: prompts tell the model that what is inside is data.
"""

from harnesses.contract import ToolResult

BLOCK_TOKENS = 1_500
"""One search or listing."""
READ_TOKENS = 4_000
READ_LINES = 400
TURN_TOKENS = 8_000
"""All results of one turn together."""
MIN_ROOM = 150
"""With less room left in the turn nothing useful can be shown."""

REPORT_CHARACTERS = 300
FENCE_TOKENS = 20
"""The two fences and a line that says what was left out."""

OPEN_FENCE = "<repository_text>"
CLOSE_FENCE = "</repository_text>"

NO_ROOM = ToolResult(
    ok=False,
    text=f"Error: the results of this turn already fill {TURN_TOKENS} tokens. "
    "Make this call again in the next turn.",
)


def estimate_tokens(text: str) -> int:
    """Tokens of ``text`` at four bytes each, rounded up."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


def fenced(lines: list[str]) -> str:
    """Repository text between the fences, each on a line of its own."""
    body = "\n".join(lines).replace(CLOSE_FENCE[:-1], "<\\/repository_text")
    return f"{OPEN_FENCE}\n{body}\n{CLOSE_FENCE}"


def fenced_report(text: str, max_tokens: int) -> str:
    """What a program printed, fenced: all of it, or its head and twice as much of its tail."""
    lines = [
        cut_line(line.encode("utf-8", "replace"), 0, REPORT_CHARACTERS) for line in text.split("\n")
    ]
    costs = [estimate_tokens(line + "\n") for line in lines]
    room = max_tokens - FENCE_TOKENS
    if sum(costs) <= room:
        return fenced(lines)
    head = tail = used = 0
    while used + costs[head] <= room // 3:
        used += costs[head]
        head += 1
    while used + costs[-1 - tail] <= room:
        used += costs[-1 - tail]
        tail += 1
    left_out = len(lines) - head - tail
    return fenced([*lines[:head], f"[{left_out} lines left out]", *lines[len(lines) - tail :]])


def cut_line(text: bytes, start: int, width: int) -> str:
    """A line as text, cut to ``width`` characters around byte offset ``start``.

    ``…`` stands where something was cut. Only a window is decoded: a line may have megabytes.
    """
    window = 4 * width
    before = text[max(0, start - window) : start].decode("utf-8", "replace")
    after = text[start : start + window].decode("utf-8", "replace")
    left = min(len(before), max(width // 3, width - len(after)))
    right = width - left
    cut_left = left < len(before) or start > window
    cut_right = right < len(after) or start + window < len(text)
    return (
        ("…" if cut_left else "")
        + (before[len(before) - left :] + after[:right])
        + ("…" if cut_right else "")
    )
