"""The report as Markdown (CommonMark with tables), for a repository or a review.

The same words and numbers as the HTML page; of a figure its description and its table.
"""

from collections.abc import Iterator, Sequence

from projections.report.model import (
    Block,
    Code,
    Commands,
    Fact,
    Facts,
    Folded,
    ForestPlot,
    Paragraph,
    Report,
    Table,
    grouped,
)
from projections.report.plain_text import markdown_code, markdown_paragraph, markdown_text


def render_markdown(report: Report) -> bytes:
    """The same report gives the same bytes."""
    lines = [f"# {markdown_text(report.title)}", ""]
    if report.banner:
        lines += [f"> **{markdown_text(report.banner)}**", ""]
    lines += [
        f"Study {markdown_text(report.study_id)}",
        "",
        markdown_paragraph(report.question),
        "",
    ]
    for sentence in report.reworded:
        lines += [f"> {markdown_paragraph(sentence)}", ""]
    lines += [
        f"## {_marked(report.result_title, report)}",
        "",
        markdown_paragraph(report.result),
        "",
    ]
    for table in report.overview:
        lines += [*_table(table, report), ""]
    for remark in report.remarks:
        lines += [markdown_paragraph(remark), ""]
    lines += [_spans(report.check), "", *_facts(report.facts), ""]
    for section in report.sections:
        lines += [f"## {markdown_text(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block, report), ""]
    lines += [f"Every number was computed from {markdown_text(report.computed_from)}.", ""]
    return "\n".join(lines).encode()


def _block(block: Block, report: Report) -> Iterator[str]:
    match block:
        case Paragraph():
            yield _spans(block.spans)
        case Facts():
            yield from _facts(block.items)
        case Commands():
            yield from ("```sh", *block.lines, "```")
        case Table():
            yield from _table(block, report)
        case Folded():
            yield f"### {markdown_text(block.title)}"
            yield ""
            yield from _table(block.table, report)
        case ForestPlot():
            yield f"**{_marked(block.title, report)}**"
            yield ""
            yield markdown_paragraph(block.description)
            yield ""
            yield from _table(block.table, report)


def _table(table: Table, report: Report) -> Iterator[str]:
    yield f"**{_marked(table.caption, report)}**"
    yield ""
    yield _row([markdown_text(column.title) for column in table.columns])
    yield _row(["---:" if column.kind == "number" else "---" for column in table.columns])
    for title, rows in grouped(table):
        if title:
            yield _row([f"**{markdown_text(title)}**", *("" for _ in table.columns[1:])])
        for row in rows:
            yield _row(
                [
                    markdown_code(text) if column.kind == "code" else markdown_text(text)
                    for column, text in zip(table.columns, row, strict=True)
                ]
            )
    if table.note:
        yield ""
        yield markdown_paragraph(table.note)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _facts(facts: Sequence[Fact]) -> Iterator[str]:
    for fact in facts:
        value = markdown_code(fact.value) if fact.is_code else markdown_text(fact.value)
        yield f"- {markdown_paragraph(fact.term)}: {value}"


def _spans(spans: Sequence[str | Code]) -> str:
    plain = markdown_paragraph
    parts = []
    for span in spans:
        parts.append(markdown_code(span.text) if isinstance(span, Code) else plain(span))
        plain = markdown_text
    return "".join(parts)


def _marked(text: str, report: Report) -> str:
    """A caption with the word that every figure and table of a simulation carries."""
    return markdown_text(f"{report.mark}: {text}" if report.mark else text)
