"""The report as one HTML file: no script, no font, no image from anywhere else.

Every expression of the templates is made visible (``plain_text.visible``) and escaped; only what
the templates themselves say is markup.
"""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from projections.report.forest_plot import lay_out
from projections.report.model import MARKS, RUN_PAGES, VERDICTS, Report, grouped, run_page
from projections.report.plain_text import visible


def render_html(report: Report) -> bytes:
    """The same report gives the same bytes."""
    page = _environment().get_template("report.html.j2")
    text = page.render(
        report=report,
        marks=MARKS,
        verdicts=VERDICTS,
        grouped=grouped,
        lay_out=lay_out,
        pages=RUN_PAGES,
        run_page=run_page,
    )
    return text.strip().encode() + b"\n"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("projections.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalized(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
