import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.analyses.named_stream import (
    CHUNK_ROWS,
    draw_index_rows,
    index_bytes,
    index_digest,
    open_stream,
)

ORACLE = json.loads((Path(__file__).parents[1] / "oracles/rng_stream.public.json").read_text())

properties = settings(deadline=None, derandomize=True, max_examples=40)


@pytest.mark.parametrize("case", ORACLE["cases"], ids=lambda c: c["name"])
def test_oracle(case):
    words = open_stream(case["name"]).random_raw(4)
    assert [str(word) for word in words.tolist()] == case["first_raw_words"]
    (rows,) = draw_index_rows(case["name"], 1, [60])
    assert rows[0, :12].tolist() == case["first_indices_n60"]
    assert index_digest(case["name"], 10_000, [60]) == case["sha256_indices_le_int64_10000x60"]


def test_drawing_in_chunks_changes_memory_and_not_the_matrix():
    replicates = 2 * CHUNK_ROWS + 7
    chunks = list(draw_index_rows("chunks", replicates, [5]))
    assert [len(chunk) for chunk in chunks] == [CHUNK_ROWS, CHUNK_ROWS, 7]
    words = open_stream("chunks").random_raw(replicates * 5).tolist()
    expected = np.array([((word >> 32) * 5) >> 32 for word in words]).reshape(-1, 5)
    assert np.array_equal(np.concatenate(chunks), expected)
    digest = hashlib.sha256(expected.astype("<i8").tobytes()).hexdigest()
    assert index_digest("chunks", replicates, [5]) == digest


@properties
@given(st.text(min_size=1, max_size=20), st.integers(1, 40), st.integers(1, 40))
def test_fewer_replicates_are_the_first_rows_of_more(name, few, more):
    few, more = sorted((few, more))
    (short,) = draw_index_rows(name, few, [7, 3])
    (long,) = draw_index_rows(name, more, [7, 3])
    assert np.array_equal(short, long[:few])


@properties
@given(st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_every_column_stays_within_its_stratum(sizes):
    (rows,) = draw_index_rows("strata", 200, sizes)
    assert rows.shape == (200, sum(sizes))
    column = 0
    for size in sizes:
        block = rows[:, column : column + size]
        assert block.min() >= column
        assert block.max() < column + size
        column += size


def test_every_index_is_about_equally_frequent():
    (rows,) = draw_index_rows("frequencies", 10_000, [60])
    frequency = np.bincount(rows.ravel(), minlength=60) / rows.size
    assert np.abs(frequency * 60 - 1).max() < 0.05


def test_streams_of_different_names_differ_and_equal_names_agree():
    (one,) = draw_index_rows("primary", 50, [60])
    (again,) = draw_index_rows("primary", 50, [60])
    (other,) = draw_index_rows("secondary", 50, [60])
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_digested_bytes_are_little_endian_and_row_major():
    rows = np.asfortranarray(np.array([[1, 2], [3, 256]], dtype=np.int64))
    expected = b"".join(value.to_bytes(8, "little") for value in (1, 2, 3, 256))
    assert index_bytes(rows) == expected


@pytest.mark.parametrize(
    ("name", "replicates", "sizes", "message"),
    [
        ("", 10, [60], "a stream needs a name"),
        ("s", 0, [60], "replicates must be a whole number of at least 1"),
        ("s", 10, [], "from 1 to 2\\*\\*31 - 1 units, not 0"),
        ("s", 10, [20, 0], "the size of a stratum must be a whole number of at least 1"),
        ("s", 10, [2**31], "from 1 to 2\\*\\*31 - 1 units"),
    ],
)
def test_refusals_come_before_the_first_row(name, replicates, sizes, message):
    with pytest.raises(ValueError, match=message):
        draw_index_rows(name, replicates, sizes)
