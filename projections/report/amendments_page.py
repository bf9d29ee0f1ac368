"""``PROTOCOL_AMENDMENTS.md`` of a report: the ledger's own rendering, over neutralised words."""

from dataclasses import replace

import msgspec

from projections.amendments import Amendments, render_markdown
from projections.report.plain_text import markdown_text, visible


def render_amendments(amendments: Amendments) -> bytes:
    """No reason and no name can pass for another line or another amendment."""
    rows = [
        msgspec.structs.replace(
            row,
            reason=markdown_text(row.reason),
            changed=_names(row.changed),
            removed=_names(row.removed),
            keys=_names(row.keys),
        )
        for row in amendments.recorded
    ]
    return render_markdown(replace(amendments, recorded=rows)).encode()


def _names(lines: str) -> str:
    """They stand in code spans, one a line."""
    return "\n".join(visible(name).replace("`", "\\x60") for name in lines.split("\n"))
