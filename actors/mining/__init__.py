"""The benchmark miner: from a repository's history to validated tasks (``docs/mining.md``).

Read :mod:`actors.mining.walk` first, then :mod:`actors.mining.criteria`. This module imports only
what needs git alone; :mod:`actors.mining.walk` pulls in pygit2.
"""

from actors.mining.tree_pack import pack_trees

__all__ = ["pack_trees"]
