"""The tree against RFC 6962's known roots and against Go's tlog (vectors.json says how made)."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.chain import leaf_hash
from ledger.merkle import (
    EMPTY_ROOT,
    Frontier,
    consistency_proof,
    inclusion_proof,
    node_hash,
    proves_consistency,
    proves_inclusion,
    tree_root,
)

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text("utf-8"))
LEAVES = [leaf_hash(f"record {n}".encode()) for n in range(70)]

# The reference tree of Certificate Transparency (merkletree tests of RFC 6962's authors).
KNOWN_LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
KNOWN_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def stored(start: int, stop: int) -> list[bytes]:
    return LEAVES[start:stop]


def hexes(proof: list[bytes]) -> list[str]:
    return [node.hex() for node in proof]


def test_roots_known_from_certificate_transparency() -> None:
    frontier = Frontier()
    assert frontier.root() == EMPTY_ROOT == sha256(b"").digest()
    for record, root in zip(KNOWN_LEAVES, KNOWN_ROOTS, strict=True):
        frontier.extend([leaf_hash(record)])
        assert frontier.root().hex() == root


def test_roots_agree_with_tlog() -> None:
    assert len(VECTORS["roots"]) == len(LEAVES) + 1
    for size, root in enumerate(VECTORS["roots"][1:], 1):
        assert tree_root(LEAVES[:size]).hex() == root


@pytest.mark.parametrize("vector", VECTORS["inclusion"], ids=lambda v: f"{v['index']}of{v['size']}")
def test_inclusion_agrees_with_tlog(vector: dict[str, Any]) -> None:
    index, size = vector["index"], vector["size"]
    proof = inclusion_proof(stored, index, size)
    assert hexes(proof) == vector["proof"]
    root = bytes.fromhex(VECTORS["roots"][size])
    assert proves_inclusion(LEAVES[index], index, size, proof, root)


@pytest.mark.parametrize("vector", VECTORS["consistency"], ids=lambda v: f"{v['old']}in{v['size']}")
def test_consistency_agrees_with_tlog(vector: dict[str, Any]) -> None:
    old, size = vector["old"], vector["size"]
    proof = consistency_proof(stored, old, size)
    assert hexes(proof) == vector["proof"]
    roots = [bytes.fromhex(root) for root in VECTORS["roots"]]
    assert proves_consistency(old, size, proof, roots[old], roots[size])


def textbook_root(leaves: list[bytes]) -> bytes:
    """MTH as RFC 9162 writes it, recursively: another way to the same value."""
    if not leaves:
        return EMPTY_ROOT
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return node_hash(textbook_root(leaves[:split]), textbook_root(leaves[split:]))


@given(st.integers(0, 70), st.integers(0, 70))
def test_frontier_does_not_depend_on_how_it_is_fed(first: int, second: int) -> None:
    frontier = Frontier()
    frontier.extend(LEAVES[:first])
    copy = frontier.copy()
    frontier.extend(LEAVES[first:second])
    assert copy.root() == textbook_root(LEAVES[:first])
    assert frontier.root() == textbook_root(LEAVES[: max(first, second)])
    assert Frontier(frontier.size, frontier.roots).root() == frontier.root()


@given(st.data())
def test_no_altered_proof_is_accepted(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 70))
    index = data.draw(st.integers(0, size - 1))
    root = tree_root(LEAVES[:size])
    proof = inclusion_proof(stored, index, size)
    for other in {index - 1, index + 1, index ^ 1} - {index}:
        assert not proves_inclusion(LEAVES[index], other, size, proof, root)
    assert not proves_inclusion(LEAVES[(index + 1) % 70], index, size, proof, root)
    assert not proves_inclusion(LEAVES[index], index, size, [*proof, LEAVES[0]], root)
    if proof:
        place = data.draw(st.integers(0, len(proof) - 1))
        broken = [*proof[:place], proof[place][::-1], *proof[place + 1 :]]
        assert not proves_inclusion(LEAVES[index], index, size, broken, root)
        assert not proves_inclusion(LEAVES[index], index, size, proof[:-1], root)

    old = data.draw(st.integers(1, size))
    old_root = tree_root(LEAVES[:old])
    proof = consistency_proof(stored, old, size)
    assert not proves_consistency(old, size, proof, old_root[::-1], root)
    assert not proves_consistency(old, size, proof, old_root, root[::-1])
    assert not proves_consistency(old, size, [*proof, LEAVES[0]], old_root, root)
    if proof:
        assert not proves_consistency(old, size, proof[:-1], old_root, root)
    if old > 1:
        assert not proves_consistency(old - 1, size, proof, old_root, root)


def test_positions_outside_the_tree() -> None:
    with pytest.raises(ValueError, match="no record 3"):
        inclusion_proof(stored, 3, 3)
    with pytest.raises(ValueError, match="no tree of 0"):
        consistency_proof(stored, 0, 3)
    assert not proves_inclusion(LEAVES[0], 0, 0, [], EMPTY_ROOT)
    assert not proves_consistency(0, 3, [], EMPTY_ROOT, tree_root(LEAVES[:3]))
    with pytest.raises(ValueError, match="2 perfect subtrees"):
        Frontier(3, [])
