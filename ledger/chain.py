"""The hash chain: one hash an event, over the exact stored bytes.

``leaf(n) = SHA-256(0x00 ‖ record bytes n)`` is the leaf hash of RFC 6962, section 2.1. Record n
carries ``leaf(n-1)`` as ``prev``; record 0 carries 64 zeros. The same leaves feed the Merkle tree
(``ledger/merkle.py``), so the chain and the tree are two readings of one list of hashes.
"""

from hashlib import sha256


def leaf_hash(record: bytes) -> bytes:
    """The 32-byte leaf of one record."""
    return sha256(b"\x00" + record).digest()
