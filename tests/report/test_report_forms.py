"""The report: the same numbers in every form, well-formed, alone on paper, unmoved by its texts."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

import msgspec
import pytest
from markdown_it import MarkdownIt

from projections.repair.report.result import too_few_pairs
from projections.repair.results import Results
from projections.report.forest_plot import lay_out
from projections.report.model import BANNER, MARKS, ForestPlot, ForestRow, Table
from tests.report.conftest import Make, reported
from tests.report.small_study import NOTHING, RAN, RESOLVED, TOML, Ran

VOID_ELEMENTS = {"meta", "br", "hr", "img", "link", "input"}
SELF_CLOSING = {"line", "path", "rect", "circle", "polygon"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    children: list["Element"] = field(default_factory=list)
    own_text: list[str] = field(default_factory=list)

    def all(self, tag: str) -> list["Element"]:
        found = [self] if self.tag == tag else []
        return found + [each for child in self.children for each in child.all(tag)]

    @property
    def text(self) -> str:
        """What is in the element, in order of appearance."""
        return "".join(self.own_text)


class Page(HTMLParser):
    """A tree of the page; fails on an element that is not closed where it should be."""

    def __init__(self, content: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self._open = [self.root]
        self.feed(content.decode())
        self.close()
        assert [element.tag for element in self._open] == [""], "an element is not closed"

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, dict(attrs))
        self._open[-1].children.append(element)
        if tag not in VOID_ELEMENTS:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        assert tag in SELF_CLOSING, f"<{tag}/> is not self-closing in HTML"
        self._open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.own_text.append(data)

    def all(self, tag: str) -> list[Element]:
        return self.root.all(tag)

    @property
    def words(self) -> str:
        return " ".join(self.all("body")[0].text.split())


@pytest.fixture(scope="module")
def page(report: dict[str, bytes]) -> Page:
    return Page(report["report.html"])


# --- form ----------------------------------------------------------------------------------------


def test_the_page_is_well_formed_and_its_ids_are_unique(page: Page) -> None:
    ids: list[str] = []
    references: list[str] = []

    def visit(element: Element) -> None:
        if identifier := element.attributes.get("id"):
            ids.append(identifier)
        references.extend((element.attributes.get("aria-labelledby") or "").split())
        href = element.attributes.get("href")
        if href is not None:
            assert href.startswith("#")
            references.append(href[1:])
        for child in element.children:
            visit(child)

    visit(page.root)
    assert len(ids) == len(set(ids))
    assert references and set(references) <= set(ids)
    assert page.all("html")[0].attributes["lang"] == "en"
    assert [heading.text for heading in page.all("h1")] == ["Do file names help?"]


def test_nothing_comes_from_outside_and_nothing_runs(report: dict[str, bytes]) -> None:
    text = report["report.html"].decode()
    page = Page(report["report.html"])
    for tag in ("script", "link", "img", "iframe", "object", "embed", "form", "base"):
        assert not page.all(tag)
    assert not re.search(r"\b(src|srcset|on\w+)=|@import|url\(|https?://", text)
    assert "default-src 'none'" in text


def test_sections_stand_in_the_declared_order(page: Page) -> None:
    assert [heading.attributes["id"] for heading in page.all("h2")] == [
        *("result", "deviations", "flow", "primary", "matrix", "contrasts", "forest"),
        *(
            "secondary",
            "resources",
            "hierarchical",
            "funnel",
            "gold-symbol",
            "robustness",
            "order",
            "models",
            "isolation",
            "tasks",
        ),
        *("readings", "amendments", "reproduction"),
    ]


def test_rows_are_as_wide_as_their_heads(page: Page) -> None:
    tables = page.all("table")
    assert len(tables) > 15
    for table in tables:
        (head,) = table.all("thead")
        width = len(head.all("th")) + len(head.all("td"))
        for body in table.all("tbody"):
            for row in body.all("tr"):
                cells = row.all("th") + row.all("td")
                assert sum(int(cell.attributes.get("colspan") or 1) for cell in cells) == width


def test_the_figure_has_a_title_a_description_and_its_numbers_beside_it(page: Page) -> None:
    (figure,) = page.all("svg")
    assert figure.attributes["role"] == "img"
    (title,), (description,) = figure.all("title"), figure.all("desc")
    assert figure.attributes["aria-labelledby"] == "forest-title forest-desc"
    assert (title.attributes["id"], description.attributes["id"]) == ("forest-title", "forest-desc")
    assert title.text and "smallest effect of interest, +0.200" in description.text
    assert [line.attributes.get("class") for line in figure.all("line")].count("smallest") == 1
    assert len(figure.all("polygon")) == 1  # the primary contrast
    assert len(figure.all("rect")) == 2  # the family
    assert len(figure.all("circle")) == 1  # the estimate
    numbers = next(
        table for table in page.all("table") if "exact limit" in table.all("thead")[0].text
    )
    assert len(numbers.all("tbody")[0].all("tr")) == 4


def test_sensitivity_is_read_downwards_however_many_analyses_there_are(page: Page) -> None:
    (table,) = [
        figure.all("table")[0]
        for figure in page.all("figure")
        if "Sensitivity of every contrast" in figure.all("figcaption")[0].text
    ]
    assert [cell.text for cell in table.all("thead")[0].all("th")] == [
        *("analysis", "difference", "95 % interval", "p"),
    ]
    names = [row.all("th")[0].text for row in table.all("tbody")[0].all("tr")]
    assert "(primary)" in names[0]
    assert names[1:] == [
        *("as declared", "mid-p", "Tango score", "Newcombe 10", "submitted automatically"),
        *("all missing for", "all missing against", "stratified bootstrap"),
        *("without R001", "without R002"),
    ]


def test_too_few_pairs_for_any_result_are_said_with_the_result(report: dict[str, bytes]) -> None:
    said = (
        "With 3 pairs no result could reach p \u2264 0.05: the smallest possible exact p is 0.2500."
    )
    for name in ("report.html", "report.md"):
        assert f"{said} It takes 6 pairs at least." in report[name].decode(), name


@pytest.mark.parametrize(
    ("pairs", "alpha", "words"),
    [(0, 0.05, ""), (5, 0.05, "6 pairs"), (6, 0.05, ""), (6, 0.01, "8 pairs"), (2, 0.5, "")],
)
def test_how_many_pairs_it_takes(pairs: int, alpha: float, words: str) -> None:
    said = too_few_pairs(pairs, alpha)
    assert bool(said) == bool(words)
    assert words in said


def test_facts_with_a_digest_have_a_line_that_breaks(page: Page) -> None:
    facts = [each for each in page.all("div") if each.all("dt")]
    long = [each for each in facts if re.search(r"[0-9a-f]{40}", each.text)]
    assert len(long) >= 4
    assert all(each.attributes.get("class") == "wide" for each in long)


def test_signs_of_the_matrix_are_read_out(page: Page) -> None:
    (matrix,) = [
        table
        for table in page.all("table")
        if table.attributes.get("class") == "marks" and "R001-001" in table.text
    ]
    rows = {row.all("th")[0].text: row.all("td") for row in matrix.all("tbody")[0].all("tr")}
    first = [cell.text for cell in rows["R001-001"]]
    assert first == [
        "\u25cbnot resolved",
        "\u2013missing",
        "\u25cfresolved",
        "\u25cfresolved",
    ]
    assert rows["R001-002"][1].text.startswith("\u25d0not submitted")
    assert [cell.text for cell in rows["resolved"]] == ["1/3", "0/2", "3/3", "1/2"]
    for row in rows.values():
        for cell in row:
            assert all(span.attributes for span in cell.all("span"))


# --- numbers -------------------------------------------------------------------------------------


def test_every_form_has_the_same_primary_numbers(report: dict[str, bytes]) -> None:
    results = msgspec.json.decode(report["results.json"], type=Results)
    found = results.contrast("primary")
    table = found.table
    assert (table.both, table.new_only, table.baseline_only, table.neither) == (1, 2, 0, 0)

    cells = list(csv.DictReader(io.StringIO(report["cells.csv"].decode(), newline="")))
    resolved = {
        (cell["task"], cell["treatment"]): cell["resolved"]
        for cell in cells
        if cell["model"] == "M002"
    }
    pairs = [(resolved[task, "H018"], resolved[task, "H000"]) for task, _ in resolved]
    assert pairs.count(("1", "0")) / 2 == table.new_only  # every task stands there twice
    assert pairs.count(("0", "1")) / 2 == table.baseline_only
    assert pairs.count(("1", "1")) / 2 == table.both

    sentence = (
        "H018 against H000 with M002: 3/3 of the tasks resolved against 1/3; risk difference "
        "+0.667 (95 % bootstrap interval 0.000 to +1.000, Tango \u22120.269 to +0.939). Exact "
        "McNemar p = 0.5000 > 0.05: no difference is shown at this level, which does not show "
        "that there is none."
    )
    assert sentence in Page(report["report.html"]).words
    markdown = report["report.md"].decode()
    assert sentence in markdown
    assert "| H000 not resolved | 2 | 0 | 2 |" in markdown
    assert "2: R001-001, R001-002" in markdown
    assert "0.5000 (= 1/2)" in markdown


def test_html_and_markdown_have_the_same_tables(report: dict[str, bytes], page: Page) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(report["report.md"].decode())
    in_markdown: list[list[str]] = []
    for opened, content in zip(tokens, tokens[1:], strict=False):
        if opened.type == "tr_open":
            in_markdown.append([])
        elif opened.type in ("th_open", "td_open"):
            words = [child.content for child in content.children or []]
            in_markdown[-1].append("".join(words))
    in_html = [
        [each.text for each in element.children if each.tag in ("th", "td")]
        for table in page.all("table")
        for element in table.all("tr")
    ]
    assert len(in_html) == len(in_markdown) > 80
    for html_row, markdown_row in zip(in_html, in_markdown, strict=True):
        for html_text, markdown_text in zip(html_row, markdown_row, strict=False):
            # A sign of the matrix is followed by what is read out.
            assert html_text == markdown_text or html_text.removeprefix(markdown_text) in (
                MARKS.values()
            )


def test_csv_has_every_planned_cell(report: dict[str, bytes]) -> None:
    cells = list(csv.DictReader(io.StringIO(report["cells.csv"].decode(), newline="")))
    assert {cell["cell"] for cell in cells} == set(RAN)
    by_cell = {cell["cell"]: cell for cell in cells}
    assert by_cell["R001-001/H000/M003/0"]["status"] == "void"
    assert by_cell["R001-001/H000/M003/0"]["resolved"] == ""
    assert by_cell["R002-001/H018/M003/0"]["status"] == "infrastructure"
    assert {cell["simulated"] for cell in cells} == {"1"}


def test_no_percentage_stands_beside_fewer_than_ten(report: dict[str, bytes]) -> None:
    for name in ("report.html", "report.md"):
        assert not re.search(r"/\d \(\d+(\.\d+)? %\)", report[name].decode())
    assert "not estimable (0/0)" in report["report.md"].decode()


def test_percentages_and_intervals_appear_from_ten_on(make: Make) -> None:
    ran = {
        f"R001-{number:03}/{arm}/M002/0": RESOLVED if number <= solved else NOTHING
        for number in range(1, 11)
        for arm, solved in (("H000", 2), ("H018", 8))
    }
    study = make(ran=ran)
    study.write_complete()
    markdown = reported(study)["report.md"].decode()
    assert "8/10 (80 %) of the tasks resolved against 2/10 (20 %)" in markdown
    assert "p = 0.0312 \u2264 0.05: H018 resolves more tasks, by a test at this level." in markdown
    assert "The whole bootstrap interval is at least the smallest effect" in markdown
    assert "| H018 M002 | 8/10 (80 %) | 0.490 to 0.943 |" in markdown


def test_every_number_cites_its_head(report: dict[str, bytes], page: Page) -> None:
    results = msgspec.json.decode(report["results.json"], type=Results)
    head = results.computed_from
    cited = f"Every number was computed from record {head.head}, leaf {head.leaf}."
    assert cited in page.words
    assert cited in report["report.md"].decode()
    assert head.study in page.words
    assert "ledger verify-chain" in page.words.split("Deviations")[0]
    assert "ledger replay --check" in page.words.split("Deviations")[0]


# --- what is said --------------------------------------------------------------------------------


def test_the_banner_stands_once_and_every_caption_carries_its_word(
    report: dict[str, bytes], page: Page
) -> None:
    for name in ("report.html", "report.md"):
        assert report[name].decode().count(BANNER) == 1
    captions = page.all("figcaption")
    assert len(captions) > 15
    assert all(caption.text.startswith("simulated ") for caption in captions)
    headings = re.findall(r"^\*\*(.+)\*\*$", report["report.md"].decode(), re.MULTILINE)
    assert len(headings) == len(captions)
    assert all(heading.startswith("simulated: ") for heading in headings)


def test_a_study_of_real_agents_has_no_banner(make: Make) -> None:
    toml = re.sub(r"^rehearsal = .*$", "", TOML, flags=re.MULTILINE)
    toml = toml.replace("simulated = true", "").replace('"stand_in"', '"lmstudio"')
    study = make(toml=toml)
    study.write_complete()
    files = reported(study)
    for name in ("report.html", "report.md"):
        words = files[name].decode().split("</style>")[-1].lower()
        assert "simulated" not in words and "evidence" not in words


def test_deviations_are_named_with_their_records(make: Make) -> None:
    study = make()
    study.write_complete()
    study.amend_to(TOML, "after_first_cell", "the wording was corrected")
    study.inspect("a second look")
    markdown = reported(study)["report.md"].decode()
    section = markdown.split("## Deviations")[1].split("## Flow")[0]
    seqs = {
        fact.event.TYPE: fact.seq
        for fact in study.facts()
        if fact.event.TYPE in ("amendment.recorded.v2", "cell.voided.v1", "outcomes.inspected.v1")
    }
    assert (
        f"| amendment after the first cell: exploratory | {seqs['amendment.recorded.v2']} | the "
        "wording was corrected |"
    ) in section
    assert f"| cell voided | {seqs['cell.voided.v1']} | R001-001/H000/M003/0: its gold" in section
    assert (
        f"| {seqs['outcomes.inspected.v1']} | 12 cells with an outcome: a second look |" in section
    )
    assert section.count("| cell run again after an infrastructure failure |") == 2
    assert "Exploratory amendments after the first cell: 1" in markdown.split("## Deviations")[0]
    assert "the wording was corrected" in reported(study)["PROTOCOL_AMENDMENTS.md"].decode()


def test_an_amendment_shows_what_it_changed_from_what_to_what(make: Make) -> None:
    study = make()
    study.write_complete()
    toml = TOML.replace("[analysis]", "[analysis]\nalpha = 0.2")
    study.amend_to(toml, "after_inspection")
    quoted = msgspec.json.encode(HOSTILE).decode()
    study.amend_to(
        toml.replace("[readings]", f"[readings]\n{quoted} = {quoted}"), "after_inspection"
    )
    files = reported(study)
    alpha = "analysis.alpha: 0.05 \u2192 0.2"
    page = Page(files["report.html"])
    assert alpha in page.words and f"readings.{quoted_and_visible()}: absent" in page.words
    assert not page.all("script") and not page.all("img")
    assert f" | `{alpha}` |\n" in files["report.md"].decode()
    amendments = files["PROTOCOL_AMENDMENTS.md"].decode()
    assert f"- Changed: `study.toml`\n    - `{alpha}`\n" in amendments
    assert amendments.count("\n#") == 2, "a heading for each of the two"
    (hostile,) = [line for line in amendments.splitlines() if "readings." in line]
    assert hostile.count("`") == 2 and hostile.startswith("    - `") and hostile.endswith("`")
    assert hostile.replace("\u2192", "").isascii()


def test_models_and_budgets_stand_as_cells_began_with_them(make: Make) -> None:
    study = make()
    study.write_complete()
    shorter = TOML.replace("context_length = 65536\nmax", "context_length = 8192\nmax", 1)
    study.amend_to(f"{shorter}\n[budgets]\nturns = 20\n", "after_inspection")
    files = reported(study)
    frozen, amended = (
        fact.seq
        for fact in study.facts()
        if fact.event.TYPE in ("study.frozen.v2", "amendment.recorded.v2")
    )
    results = msgspec.json.decode(files["results.json"], type=Results)
    assert [
        (each.model.id, each.since, each.cells, each.model.context_length)
        for each in results.models
    ] == [("M002", frozen, 6, 65536), ("M002", amended, 0, 8192), ("M003", frozen, 6, 65536)]
    assert [(each.since, each.cells, each.budgets.turns) for each in results.budgets] == [
        (frozen, 12, 12),
        (amended, 0, 20),
    ]
    markdown = files["report.md"].decode()
    key = "`test/strong` | `test/strong@4bit` | 4bit | mlx"
    for line in (
        f"| M002 | {frozen} | 6 | {key} | 65,536 | 65,536 | on | omit |",
        f"| M002 | {amended} | 0 | {key} | 8,192 | 65,536 | on | omit |",
        f"| M003 | {frozen} | 0 | 1 | 0 | 8,192 |",
        f"| {frozen} | 12 | 12 | 12 | 2 | 1,000,000 | 3 |",
        f"| {amended} | 0 | 20 | 12 | 2 | 1,000,000 | 3 |",
    ):
        assert f"\n{line}\n" in markdown
    sentence = f"in tokens: M002 65,536, from record {amended} on 8,192; M003 65,536."
    assert sentence in markdown
    words = Page(files["report.html"]).words
    assert sentence in words and "test/strong@4bit" in words and "8,192" in words


def test_a_cell_that_begins_again_counts_where_its_last_attempt_began(make: Make) -> None:
    study = make()
    study.write_complete()
    begun = [fact.seq for fact in study.facts() if fact.event.TYPE == "cell.started.v1"]
    results = msgspec.json.decode(reported(study)["results.json"], type=Results)
    assert len(begun) == 14 and sum(each.cells for each in results.models) == 12


def test_names_of_models_are_cleared_of_credentials(make: Make) -> None:
    study = make(toml=TOML.replace('"test/strong"', '"http://me:word@host/strong?token=abc"'))
    study.write_complete()
    for content in reported(study).values():
        assert b"me:word" not in content and b"token=abc" not in content


def quoted_and_visible() -> str:
    """HOSTILE as a key of TOML: JSON has escaped all but the override."""
    return msgspec.json.encode(HOSTILE).decode().replace("\u202e", "\\u202e")


def test_without_a_deviation_that_is_said(make: Make) -> None:
    study = make(ran=dict.fromkeys(RAN, RESOLVED))
    study.write_complete()
    markdown = reported(study)["report.md"].decode()
    assert "No amendment, void, rerun, retry, interrupted run or missing sandbox" in markdown


def test_an_exploratory_primary_says_so_first(make: Make) -> None:
    study = make()
    study.write_complete()
    study.amend_to(TOML.replace("[analysis]", "[analysis]\nalpha = 0.6"), "after_inspection")
    markdown = reported(study)["report.md"].decode()
    seq = next(fact.seq for fact in study.facts() if fact.event.TYPE == "amendment.recorded.v2")
    assert f"Exploratory, changed after the first cell (record {seq}). H018 against" in markdown
    frozen, amended = markdown.split("As frozen: ")[1].split("\n")[0].split(" As amended: ")
    assert frozen.startswith("H018 against") and "p = 0.5000 > 0.05: no difference" in frozen
    assert amended.startswith("Exploratory") and "p = 0.5000 \u2264 0.6" in amended
    assert "| shown, exploratory |" in markdown


def test_a_late_title_question_or_reading_stands_beside_its_frozen_words(make: Make) -> None:
    study = make()
    study.write_complete()
    study.inspect("a look")
    study.amend_to(TOML.replace("Do file names help?", "Do names harm?"), "after_inspection")
    seq = next(fact.seq for fact in study.facts() if fact.event.TYPE == "amendment.recorded.v2")
    files = reported(study)
    sentence = f"until the amendment of record {seq}, after outcomes were inspected: exploratory: "
    for words in (Page(files["report.html"]).words, files["report.md"].decode()):
        assert "Do names harm?" in words
        assert f"{sentence}Do file names help?" in words


def test_what_is_not_estimable_is_not_claimed(make: Make) -> None:
    void = {name: Ran(void=True) for name in RAN}
    study = make(ran=void)
    study.write_complete()
    files = reported(study)
    markdown = files["report.md"].decode()
    assert (
        "H018 against H000 with M002: not estimable, because none of the 3 pairs is complete."
        in markdown
    )
    assert "nan" not in markdown.lower().split("## reproduction")[0]
    (figure,) = Page(files["report.html"]).all("svg")
    assert not figure.all("polygon") and not figure.all("rect") and not figure.all("circle")


def test_degenerate_data_get_no_bare_interval(make: Make) -> None:
    study = make(ran=dict.fromkeys(RAN, RESOLVED))
    study.write_complete()
    markdown = reported(study)["report.md"].decode()
    assert "no sampling variation in the data; 95 % Tango" in markdown
    assert "0.000 to 0.000" not in markdown


def test_a_study_without_contrasts_is_reported(make: Make) -> None:
    before, _, after = TOML.partition("[[contrasts]]")
    study = make(toml=before + after[after.index("[analysis]") :])
    study.write_complete()
    files = reported(study)
    assert "This study declares no primary contrast." in Page(files["report.html"]).words
    assert not Page(files["report.html"]).all("svg")


# --- hostile texts -------------------------------------------------------------------------------

HOSTILE = "<script>x()</script>|`a`\x1b[31m\u202eevil\n# head <img src=x onerror=y> {{7*7}}"
SHOWN = "<script>x()</script>|`a`\\x1b[31m\\u202eevil # head <img src=x onerror=y> {{7*7}}"


def test_hostile_texts_are_shown_and_not_obeyed(make: Make) -> None:
    quoted = msgspec.json.encode(HOSTILE).decode()
    toml = TOML.replace('"Do file names help?"', quoted)
    toml = toml.replace('"Does H018 resolve more tasks than H000?"', quoted)
    toml = toml.replace('"A cell that ends without submitting is unresolved."', quoted)
    study = make(toml=toml, subject=HOSTILE)
    study.write_complete()
    study.amend_to(toml, "after_inspection", HOSTILE)
    study.inspect(HOSTILE)
    files = reported(study)
    page = Page(files["report.html"])
    assert not page.all("script") and not page.all("img")
    assert page.all("h1")[0].text == SHOWN
    assert page.all("title")[0].text == SHOWN
    # Title, question, reading; the amendment twice; the inspection.
    assert page.words.count(SHOWN) == 6
    for name in ("report.html", "report.md", "cells.csv", "results.json"):
        text = files[name].decode()
        assert "\x1b" not in text and "\u202e" not in text
    markdown = files["report.md"].decode()
    assert "<script>" not in markdown and "<img" not in markdown
    assert r"&lt;script>x()&lt;/script>\|\`a\`" in markdown
    amendments = files["PROTOCOL_AMENDMENTS.md"].decode()
    assert amendments.count("\n#") == 1 and "<" not in amendments
    assert amendments.isascii() and r"\\x1b\[31m" in amendments
    rows = [line for line in markdown.splitlines() if line.startswith("| exhausted budget |")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [3]


# --- the figure ----------------------------------------------------------------------------------


def plot(*rows: ForestRow, smallest_effect: float = 0.2) -> ForestPlot:
    return ForestPlot(
        title="t",
        description="d",
        rows=rows,
        smallest_effect=smallest_effect,
        smallest_effect_label="smallest effect",
        table=Table(caption="c", columns=(), rows=()),
    )


def row(estimate: float | None, low: float, high: float, label: str = "a") -> ForestRow:
    return ForestRow(
        label=label,
        value="",
        group="g",
        role="secondary",
        estimate=estimate,
        bootstrap=None if estimate is None else (low, high),
        tango=None if estimate is None else (low, high),
    )


@pytest.mark.parametrize(
    ("estimate", "low", "high"), [(0.1, -0.05, 0.3), (1.0, -1.0, 1.0), (-0.9, -1.0, -0.4)]
)
def test_every_position_lies_on_the_scale(estimate: float, low: float, high: float) -> None:
    layout = lay_out(plot(row(estimate, low, high)))
    (group,) = layout.groups
    (mark,) = group.marks
    assert mark.bootstrap is not None and mark.tango is not None
    positions = [float(x) for x in (*mark.bootstrap, *mark.tango, mark.x, layout.smallest_x)]
    assert all(float(layout.left) <= x <= float(layout.right) for x in positions)
    left, right = map(float, mark.bootstrap)
    assert left <= float(mark.x) <= right
    ticks = [tick.label for tick in layout.ticks]
    assert "0" in ticks and len(ticks) <= 11
    zero = next(tick.x for tick in layout.ticks if tick.label == "0")
    assert zero == layout.zero_x


def test_a_row_without_an_estimate_keeps_its_place() -> None:
    layout = lay_out(plot(row(None, 0, 0), row(0.5, 0.1, 0.9)))
    first, second = layout.groups[0].marks
    assert (first.bootstrap, first.tango) == (None, None)
    assert float(second.y) > float(first.y)


def test_a_long_label_is_cut_to_what_fits() -> None:
    (group,) = lay_out(plot(row(0.0, 0.0, 0.1, "x" * 200))).groups
    assert len(group.marks[0].label) == 42
    assert group.marks[0].label.endswith("\u2026")


def test_every_sign_has_a_meaning() -> None:
    assert len(MARKS) == 4 and len(set(MARKS.values())) == 4
