import numpy as np
import pytest

from harnesses.retrieval.dense import VectorIndex, chunk_header, codes, quantise, vector_key


def test_a_code_is_scaled_to_its_largest_component():
    assert np.frombuffer(quantise([0.5, -1.0, 0.25]), dtype=np.int8).tolist() == [64, -127, 32]


@pytest.mark.parametrize("vector", [[], [0.0, 0.0], [float("nan")], [float("inf")], [1.0] * 1_025])
def test_what_has_no_direction_is_refused(vector):
    with pytest.raises(ValueError):
        quantise(vector)


def test_similarities_are_cosines_of_the_codes():
    index = VectorIndex(
        codes([quantise([1.0, 0.0]), quantise([0.0, 2.0]), quantise([3.0, 3.0])], 2)
    )
    assert index.similarities(quantise([5.0, 0.0])) == pytest.approx([1.0, 0.0, 0.5**0.5])


def test_products_are_exact_whatever_the_order_of_the_sum():
    """1,024 dimensions of the largest codes: the sum is an integer that float32 holds."""
    rng = np.random.default_rng(5)
    rows = rng.choice([-127, 127], size=(50, 1_024)).astype(np.int8)
    query = rng.choice([-127, 127], size=1_024).astype(np.int8)
    exact = rows.astype(np.int64) @ query.astype(np.int64)
    norm = np.float64(127 * 127 * 1_024)
    assert VectorIndex(rows).similarities(query.tobytes()).tolist() == (exact / norm).tolist()
    shuffled = rng.permutation(1_024)
    again = VectorIndex(rows[:, shuffled]).similarities(query[shuffled].tobytes())
    assert again.tolist() == (exact / norm).tolist()


def test_a_query_of_another_dimension_is_refused():
    with pytest.raises(ValueError, match="3 dimensions, the index has 2"):
        VectorIndex(codes([quantise([1.0, 0.0])], 2)).similarities(quantise([1.0, 0.0, 0.0]))


def test_a_mean_points_between_its_vectors():
    index = VectorIndex(codes([quantise([9.0, 0.0]), quantise([0.0, 1.0])], 2))
    assert np.frombuffer(index.mean([0, 1]), dtype=np.int8).tolist() == [127, 127]


def test_a_key_names_model_header_and_text():
    assert chunk_header("src/gitlab/v4/objects/groups.py", "Group.restore") == (
        "objects/groups.py Group.restore"
    )
    keys = {
        vector_key("model", "a", "1" * 64),
        vector_key("other", "a", "1" * 64),
        vector_key("model", "b", "1" * 64),
        vector_key("model", "a", "2" * 64),
    }
    assert len(keys) == 4
