"""Named streams of resampling indices, the same on every machine and numpy release.

A stream is the raw output of PCG64 seeded from its name, and an index comes from the upper half
of a word by a multiplication and a shift:

    PCG64(SeedSequence(int.from_bytes(sha256(name)[:16], "big")))
    index = ((word >> 32) * n) >> 32                                  0 <= index < n

numpy promises these words (NEP 19 fixes the streams of bit generators), but not the methods of
`Generator`, which may change from release to release. An index is favoured over another by less
than n / 2**32, far below the noise of any number of replicates.
"""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.random import PCG64, SeedSequence
from numpy.typing import NDArray

from projections.analyses.admissible_values import admit_count

# Rows drawn at a time: bounds memory (10,000 x 60 indices are 4.8 MB), not the result.
CHUNK_ROWS = 10_000


def open_stream(name: str) -> PCG64:
    """The bit generator of a stream; `name` is hashed as UTF-8. Refuses an empty name."""
    if not name:
        raise ValueError("a stream needs a name, one an analysis, such as 'primary-bootstrap'")
    digest = hashlib.sha256(name.encode()).digest()
    return PCG64(SeedSequence(int.from_bytes(digest[:16], "big")))


def draw_index_rows(
    name: str, replicates: int, stratum_sizes: Sequence[int]
) -> Iterator[NDArray[np.int64]]:
    """Draw the index matrix of a bootstrap, `CHUNK_ROWS` rows at a time.

    The matrix has shape (replicates, n), n the sum of `stratum_sizes`. Its columns are split
    into strata one after another; a column of a stratum that occupies positions a .. b - 1
    holds indices drawn uniformly from a .. b - 1. One stratum is the plain bootstrap. Words are
    consumed row by row, so the first rows do not depend on `replicates`.

    Raises ValueError for an empty name, fewer than one replicate, no stratum, an empty stratum
    or 2**31 units or more.
    """
    rows_left = admit_count(replicates, "replicates", minimum=1)
    sizes = [admit_count(size, "the size of a stratum", minimum=1) for size in stratum_sizes]
    n = sum(sizes)
    if not 0 < n < 2**31:
        raise ValueError(f"a bootstrap resamples from 1 to 2**31 - 1 units, not {n:,}")
    stream = open_stream(name)
    size_of_column = np.repeat(np.array(sizes, dtype=np.uint64), sizes)
    first_of_column = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes).astype(np.int64)
    return _chunks(stream, rows_left, size_of_column, first_of_column)


def _chunks(
    stream: PCG64,
    rows_left: int,
    size_of_column: NDArray[np.uint64],
    first_of_column: NDArray[np.int64],
) -> Iterator[NDArray[np.int64]]:
    shift = np.uint64(32)
    while rows_left > 0:
        rows = min(rows_left, CHUNK_ROWS)
        words = stream.random_raw(rows * len(size_of_column)).reshape(rows, -1)
        within = ((words >> shift) * size_of_column) >> shift
        yield within.astype(np.int64) + first_of_column
        rows_left -= rows


def index_bytes(rows: NDArray[np.int64]) -> bytes:
    """The bytes of index rows that digests are taken over: int64, little-endian, row-major."""
    return rows.astype("<i8", copy=False).tobytes(order="C")


def index_digest(name: str, replicates: int, stratum_sizes: Sequence[int]) -> str:
    """SHA-256 of the whole index matrix, in hexadecimal; arguments as for `draw_index_rows`."""
    digest = hashlib.sha256()
    for rows in draw_index_rows(name, replicates, stratum_sizes):
        digest.update(index_bytes(rows))
    return digest.hexdigest()
