"""Text of others is shown, never obeyed."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from projections.report.plain_text import (
    markdown_code,
    markdown_paragraph,
    markdown_text,
    visible,
)

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])

HOSTILE = (
    "<script>alert(1)</script>",
    "a | b | c",
    "`code` ``more``",
    "\x1b[31mred\x1b[0m",
    "\u202egnirts\u202c",
    "zero\u200bwidth",
    "[text](http://example.invalid) ![image](x)",
    "*a* _b_ **c** __d__ ~~e~~",
    "# heading",
    "- item",
    "12. item",
    "> quote",
    "---",
    "===",
    "&lt; &amp; &#65;",
    "<http://example.invalid> <a@example.invalid> <!-- x --> <?x?>",
    "line\nbreak\r\nand\ttab",
    "\\",
    "|",
)


def inline(markdown: str) -> list[Token]:
    return [token for block in MARKDOWN.parse(markdown) for token in (block.children or [])]


def plain(markdown: str) -> str:
    """What a reader sees; anything but text is an error."""
    tokens = inline(markdown)
    assert {token.type for token in tokens} <= {"text", "text_special", "code_inline"}, markdown
    return "".join(token.content for token in tokens)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202eabc", "\\u202eabc"),
        ("a\u200bb", "a\\u200bb"),
        ("\U000e0041", "\\U000e0041"),
        ("a\n\n b\tc", "a b c"),
        ("\x00", "\\x00"),
        ("caf\u00e9 \u2212 \u4e2d", "caf\u00e9 \u2212 \u4e2d"),
    ],
)
def test_what_would_not_be_seen_is_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_visible_text_is_one_printable_line(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(visible(text)) == visible(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_hostile_text_as_it_is(text: str) -> None:
    assert plain(markdown_paragraph(text)) == visible(text)
    assert plain(markdown_code(text)) == visible(text).replace("|", "\\x7c")


@pytest.mark.parametrize("text", ["p = 1.0000 > 0.05", "p < 0.05", "R & D", "1 -> 2"])
def test_signs_that_markdown_does_not_read_stay_as_they_are(text: str) -> None:
    assert markdown_text(text) == text
    assert plain(text) == text


@given(st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: text == text.strip()))
@example("-\u00a0a")
@example("1) a")
@example("+")
def test_markdown_shows_any_text_as_it_is(text: str) -> None:
    assert plain(markdown_paragraph(text)) == visible(text)


@given(st.lists(st.sampled_from(HOSTILE) | st.text(max_size=20), min_size=3, max_size=3))
def test_a_table_keeps_its_cells(cells: list[str]) -> None:
    row = " | ".join(markdown_text(cell) for cell in cells)
    tokens = MARKDOWN.parse(f"| a | b | c |\n| --- | --- | --- |\n| {row} |\n")
    contents = [
        "".join(child.content for child in token.children or [])
        for opened, token in zip(tokens, tokens[1:], strict=False)
        if opened.type == "td_open"
    ]
    assert contents == [visible(cell).strip() for cell in cells]
    assert [token.type for token in tokens].count("tr_open") == 2
