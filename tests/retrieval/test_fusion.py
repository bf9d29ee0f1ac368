from itertools import permutations

from harnesses.retrieval.fusion import Fused, Hit, fuse


def test_reciprocal_ranks_are_summed():
    """k = 10: file 1 has 1/11 + 1/12 = 0.174, file 0 has 1/12 + 1/13 = 0.160."""
    lists = {
        "words": [Hit(1, 5, 9, "f"), Hit(0)],
        "vectors": [Hit(2), Hit(1), Hit(0, 3, 4, "g")],
    }
    weights = {"words": 1.0, "vectors": 1.0}
    assert fuse(lists, weights, k=10) == [
        Fused(Hit(1, 5, 9, "f"), ("words", "vectors")),
        Fused(Hit(0, 3, 4, "g"), ("words", "vectors")),
        Fused(Hit(2), ("vectors",)),
    ]


def test_weights_decide_and_equal_scores_stay_in_the_order_of_paths():
    lists = {"a": [Hit(7)], "b": [Hit(3)]}
    assert [f.hit.file for f in fuse(lists, {"a": 1.0, "b": 1.0}, k=60)] == [3, 7]
    assert [f.hit.file for f in fuse(lists, {"a": 1.5, "b": 1.0}, k=60)] == [7, 3]


def test_the_order_of_the_lists_changes_no_rank():
    lists = {
        name: [Hit((start * step) % 11) for start in range(11)]
        for name, step in (("a", 1), ("b", 2), ("c", 3), ("d", 5))
    }
    weights = {"a": 1.0, "b": 0.1, "c": 0.7, "d": 0.3}
    orders = {
        tuple(f.hit.file for f in fuse({n: lists[n] for n in names}, weights, k=10))
        for names in permutations(lists)
    }
    assert len(orders) == 1
