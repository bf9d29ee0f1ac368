"""The cells as CSV (RFC 4180): one row a planned cell, whether it was analysed or not."""

import csv
import io

import msgspec

from projections.repair.results import AnalysedCell, Results


def render_csv(results: Results) -> bytes:
    """A missing number is an empty field; ``simulated`` stands in every row."""
    columns = [field.name for field in msgspec.structs.fields(AnalysedCell)]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*columns, "simulated"])
    for cell in results.cells:
        writer.writerow([*(getattr(cell, name) for name in columns), int(results.simulated)])
    return text.getvalue().encode()
