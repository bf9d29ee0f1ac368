"""Dense vectors: int8 codes, compared exactly.

A code is the vector scaled so that its largest component is 127. Products of codes are sums of
integers below 2^24 for up to 1,024 dimensions, so float32 arithmetic is exact in any order: ranks
depend on no BLAS and no processor. Only the embedding itself may differ between machines, which is
why codes are stored once and recorded.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

import numpy as np
import numpy.typing as npt

MAX_DIMENSION = 1_024
TEMPLATE_VERSION = 1

Codes = npt.NDArray[np.int8]


def quantise(vector: Sequence[float] | npt.NDArray[np.float32]) -> bytes:
    """The int8 code of a vector, one byte a dimension. Raises ValueError for one that has none:
    empty, too long, not finite or zero."""
    values = np.asarray(vector, dtype=np.float64)
    if values.ndim != 1 or not 0 < values.size <= MAX_DIMENSION:
        raise ValueError(f"a vector has 1 to {MAX_DIMENSION} dimensions, not {values.shape}")
    largest = float(np.abs(values).max())
    if not np.isfinite(largest) or largest == 0.0:
        raise ValueError("a vector must be finite and not zero")
    return np.rint(values * (127.0 / largest)).astype(np.int8).tobytes()


def codes(encoded: Iterable[bytes], dimension: int) -> Codes:
    """A matrix (vectors × dimension) of codes."""
    joined = b"".join(encoded)
    return np.frombuffer(joined, dtype=np.int8).reshape(-1, dimension)


class VectorIndex:
    """Vectors by row; what a row stands for is the caller's."""

    def __init__(self, matrix: Codes) -> None:
        self._rows = matrix.astype(np.float32)
        squares = np.einsum("ij,ij->i", self._rows, self._rows, dtype=np.float32)
        self._norms = np.sqrt(squares.astype(np.float64))

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def similarities(self, query: bytes) -> npt.NDArray[np.float64]:
        """Cosine of ``query`` (a code of the same dimension) with every row."""
        code = np.frombuffer(query, dtype=np.int8).astype(np.float32)
        if code.size != self._rows.shape[1]:
            raise ValueError(f"{code.size} dimensions, the index has {self._rows.shape[1]}")
        products = (self._rows @ code).astype(np.float64)
        norm = float(np.sqrt(np.float64(code @ code)))
        cosines: npt.NDArray[np.float64] = products / (self._norms * norm)
        return cosines

    def mean(self, rows: Sequence[int]) -> bytes:
        """The code of the mean direction of some rows."""
        chosen = self._rows[list(rows)].astype(np.float64) / self._norms[list(rows), None]
        return quantise(np.round(chosen.sum(axis=0), 9))


def chunk_header(path: str, symbol: str) -> str:
    """What stands above a chunk's text when it is embedded: the last two components of its path and
    the symbol that it is of."""
    where = "/".join(path.split("/")[-2:])
    return f"{where} {symbol}".rstrip()


def vector_key(model: str, header: str, chunk_digest: str) -> str:
    """The key of a chunk's vector. ``model`` names id, weights and dimension of the embedder; the
    chunk's text stands in by its digest."""
    named = f"{model}\ntemplate {TEMPLATE_VERSION}\n{header}\n{chunk_digest}\n"
    return sha256(named.encode("utf-8", "surrogateescape")).hexdigest()
