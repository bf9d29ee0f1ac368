"""The Merkle tree over the leaves of the chain (RFC 6962, section 2.1; RFC 9162, section 2.1).

    leaf = SHA-256(0x00 ‖ record)          node = SHA-256(0x01 ‖ left ‖ right)

One root of 32 bytes stands for every record under it, and a proof of O(log n) hashes shows that a
record lies under a root (inclusion) or that one root is a prefix of another (consistency).
Everything here is pure. Leaves are handed in as ``leaves(start, stop)``, an iterable of the leaves
at start <= position < stop, so that a proof over a million records holds O(log n) hashes.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import islice

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()

Leaves = Callable[[int, int], Iterable[bytes]]


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


class Frontier:
    """The tree's right edge: all that is needed to append and to compute the root.

    It consists of the roots of the perfect subtrees that make up the tree, one for every 1 in the
    binary form of ``size``; ``roots`` lists them, the largest (leftmost) first.
    """

    def __init__(self, size: int = 0, roots: Sequence[bytes] = ()) -> None:
        levels = [level for level in range(size.bit_length()) if size >> level & 1]
        if len(roots) != len(levels):
            raise ValueError(f"a tree of {size} leaves has {len(levels)} perfect subtrees")
        self.size = size
        self._by_level = dict(zip(reversed(levels), roots, strict=True))

    @property
    def roots(self) -> list[bytes]:
        return [self._by_level[level] for level in sorted(self._by_level, reverse=True)]

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Append leaves, at a cost of one hash each."""
        remaining = iter(leaves)
        while nodes := list(islice(remaining, 4096)):
            self.size += len(nodes)
            level = 0
            while nodes:
                if level in self._by_level:
                    nodes.insert(0, self._by_level.pop(level))
                if len(nodes) & 1:
                    self._by_level[level] = nodes.pop()
                pairs = zip(nodes[::2], nodes[1::2], strict=True)
                nodes = [sha256(b"\x01" + left + right).digest() for left, right in pairs]
                level += 1

    def root(self) -> bytes:
        """Root of the tree over everything appended so far."""
        smallest_first = self.roots[::-1]
        if not smallest_first:
            return EMPTY_ROOT
        node = smallest_first[0]
        for left in smallest_first[1:]:
            node = node_hash(left, node)
        return node

    def copy(self) -> "Frontier":
        return Frontier(self.size, self.roots)


def tree_root(leaves: Iterable[bytes]) -> bytes:
    """MTH of RFC 9162, section 2.1.1."""
    frontier = Frontier()
    frontier.extend(leaves)
    return frontier.root()


def inclusion_proof(leaves: Leaves, index: int, size: int) -> list[bytes]:
    """PATH(index, D[size]) of RFC 9162, section 2.1.3.1: the siblings, from the leaf upwards.

    Raises ValueError unless 0 <= index < size.
    """
    if not 0 <= index < size:
        raise ValueError(f"no record {index} in a tree of {size}")
    siblings = []
    start, stop = 0, size
    while stop - start > 1:
        split = start + _left_size(stop - start)
        if index < split:
            siblings.append((split, stop))
            stop = split
        else:
            siblings.append((start, split))
            start = split
    return [tree_root(leaves(*sibling)) for sibling in reversed(siblings)]


def consistency_proof(leaves: Leaves, old_size: int, size: int) -> list[bytes]:
    """PROOF(old_size, D[size]) of RFC 9162, section 2.1.4.1.

    Raises ValueError unless 0 < old_size <= size.
    """
    if not 0 < old_size <= size:
        raise ValueError(f"no tree of {old_size} records in one of {size}")
    subtrees = []
    start, stop = 0, size
    while stop != old_size:
        split = start + _left_size(stop - start)
        if old_size <= split:
            subtrees.append((split, stop))
            stop = split
        else:
            subtrees.append((start, split))
            start = split
    if start > 0:
        # The old tree is not a subtree of the new one by itself: its last part is named too.
        subtrees.append((start, stop))
    return [tree_root(leaves(*subtree)) for subtree in reversed(subtrees)]


def proves_inclusion(
    leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes
) -> bool:
    """True when ``leaf`` is record ``index`` of the tree (RFC 9162, section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    position, last, node = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if position & 1 or position == last:
            node = node_hash(sibling, node)
            while not position & 1 and position:
                position >>= 1
                last >>= 1
        else:
            node = node_hash(node, sibling)
        position >>= 1
        last >>= 1
    return last == 0 and node == root


def proves_consistency(
    old_size: int, size: int, proof: Sequence[bytes], old_root: bytes, root: bytes
) -> bool:
    """True when the tree of ``size`` begins with that of ``old_size`` (RFC 9162, 2.1.4.2)."""
    if not 0 < old_size <= size:
        return False
    if old_size == size:
        return not proof and old_root == root
    path = list(proof)
    if old_size.bit_count() == 1:
        path.insert(0, old_root)
    if not path:
        return False
    position, last = old_size - 1, size - 1
    while position & 1:
        position >>= 1
        last >>= 1
    old_node = node = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if position & 1 or position == last:
            old_node = node_hash(sibling, old_node)
            node = node_hash(sibling, node)
            while not position & 1 and position:
                position >>= 1
                last >>= 1
        else:
            node = node_hash(node, sibling)
        position >>= 1
        last >>= 1
    return last == 0 and old_node == old_root and node == root


def _left_size(size: int) -> int:
    """The largest power of two smaller than ``size``: how many leaves stand in the left subtree."""
    return 1 << (size - 1).bit_length() - 1
