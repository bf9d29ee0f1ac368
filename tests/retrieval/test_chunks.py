from hypothesis import given
from hypothesis import strategies as st

from harnesses.retrieval.chunks import JOIN_LINES, SPLIT_LINES, Span, cut
from harnesses.retrieval.syntax import Symbol


def symbol(name: str, kind: str, first: int, last: int, parent: str = "") -> Symbol:
    return Symbol(name=name, kind=kind, parent=parent, first=first, last=last)


def test_small_neighbours_are_joined_under_the_first_name():
    assert cut(20, [symbol("f", "function", 3, 8), symbol("g", "function", 10, 20)]) == [
        Span(1, 20, "f")
    ]


def test_a_long_function_is_split_evenly():
    assert cut(90, [symbol("f", "function", 1, 90)]) == [
        Span(1, 30, "f"),
        Span(31, 60, "f"),
        Span(61, 90, "f"),
    ]


def test_a_type_is_cut_at_its_methods():
    symbols = [
        symbol("T", "type", 1, 60),
        symbol("m", "method", 21, 40, "T"),
        symbol("n", "method", 41, 60, "T"),
    ]
    assert cut(60, symbols) == [Span(1, 20, "T"), Span(21, 40, "T.m"), Span(41, 60, "T.n")]


def test_an_empty_file_has_no_chunk():
    assert cut(0, []) == []


@given(st.integers(0, 400), st.lists(st.tuples(st.integers(1, 400), st.integers(0, 120))))
def test_every_line_is_in_exactly_one_chunk(lines, spans):
    symbols = [
        symbol("s", "function", first, min(first + length, lines))
        for first, length in sorted(spans)
        if first <= lines
    ]
    covered = [line for span in cut(lines, symbols) for line in range(span.first, span.last + 1)]
    assert covered == list(range(1, lines + 1))
    assert all(
        span.last - span.first < max(SPLIT_LINES, JOIN_LINES) for span in cut(lines, symbols)
    )
