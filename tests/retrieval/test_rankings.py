"""BM25F, keyword, symbol and fuzzy rankings over a small tree."""

import random
import subprocess
import sys

import pytest

from harnesses.retrieval import lexical, names
from harnesses.retrieval.index import index_in_memory, manifest_digest
from harnesses.retrieval.snapshot import snapshot, snapshot_file
from tests.retrieval.conftest import FILES, tree


def paths(index, hits):
    return [index.files[hit.file].path for hit in hits]


def test_bm25f_finds_the_place_and_shows_production_first(shop):
    hits = lexical.bm25f(shop, "the total of an order is wrong")
    assert paths(shop, hits)[0] == "shop/orders.py"
    classes = [shop.files[hit.file].file_class for hit in hits]
    assert classes == sorted(classes, key=["production", "test", "docs", "dependency"].index)
    assert (hits[0].first, hits[0].symbol) == (1, "Order")


def test_bm25f_finds_parts_of_compound_names(shop):
    assert paths(shop, lexical.bm25f(shop, "fetching: fetch order"))[0] == "shop/client.py"


def test_keyword_counts_how_much_of_the_query_a_file_has(shop):
    hits = lexical.keyword(shop, "save name in store")
    assert paths(shop, hits)[:2] == ["internal/server/server.go", "internal/store/store.go"]


def test_symbols_find_definitions_and_file_stems(shop):
    (hit,) = names.symbols(shop, "parseOrder fails")
    assert (shop.files[hit.file].path, hit.first, hit.last, hit.symbol) == (
        "shop/orders.py",
        12,
        13,
        "parse_order",
    )
    assert paths(shop, names.symbols(shop, "client")) == ["shop/client.py"]


def test_a_method_is_found_with_its_type(shop):
    assert [hit.symbol for hit in names.symbols(shop, "Handle")] == ["Server.Handle"]


def test_fuzzy_finds_names_that_are_misspelt_and_only_them(shop):
    assert paths(shop, names.fuzzy(shop, "parse_oder")) == ["shop/orders.py"]
    assert names.fuzzy(shop, "parse_order") == []
    assert names.near(shop, "HtpClient", 5)[0][0] == "HttpClient"


@pytest.mark.parametrize("query", ["", "*", ".*", "   ", "the of a", "x" * 10_000, "🦆", "\0"])
@pytest.mark.parametrize("ranking", [lexical.bm25f, lexical.keyword, names.symbols, names.fuzzy])
def test_queries_without_a_telling_word_are_answered(shop, ranking, query):
    assert len(ranking(shop, query)) <= len(shop.files)


def test_unicode_names_are_found_in_every_normal_form():
    index = index_in_memory(
        tree({"a.py": ("production", "def zähle_Größe():\n    return 1\n".encode())})
    )
    decomposed = "za\u0308hle_gro\u0308sse"
    assert paths(index, lexical.bm25f(index, decomposed)) == ["a.py"]
    assert paths(index, names.symbols(index, "Zähle_GRÖSSE")) == ["a.py"]


def test_files_that_are_searched_exactly_only_have_no_chunk():
    files = [
        snapshot_file("binary.py", "100644", b"needle\0", "production"),
        snapshot_file("large.py", "100644", b"needle\n" * 200_000, "production"),
        snapshot_file("minified.py", "100644", b"needle " * 1_000, "production"),
        snapshot_file("link.py", "120000", b"needle", "production"),
        snapshot_file("module", "160000", b"", "other"),
        snapshot_file("empty.py", "100644", b"", "production"),
        snapshot_file("bom.py", "100644", b"\xef\xbb\xbfneedle = 1", "production"),
        snapshot_file("utf16.txt", "100644", "needle".encode("utf-16"), "other"),
        snapshot_file("latin.py", "100644", b"needle = '\xe9'\n", "production"),
        snapshot_file("crlf.py", "100644", b"def needle():\r\n    pass\r\n", "production"),
        snapshot_file(b"caf\xe9.py".decode("utf-8", "surrogateescape"), "100644", b"needle = 2\n",
                      "production"),
    ]  # fmt: skip
    index = index_in_memory(snapshot(files))
    found = paths(index, lexical.bm25f(index, "needle"))
    assert sorted(found) == sorted(
        ["bom.py", "caf\udce9.py", "crlf.py", "latin.py", "utf16.txt"],
    )


def test_the_same_content_at_many_paths_is_found_at_each():
    same = b"def shared_helper():\n    return 1\n"
    index = index_in_memory(tree({f"p{n}/m.py": ("production", same) for n in range(5)}))
    assert paths(index, lexical.bm25f(index, "shared helper")) == [f"p{n}/m.py" for n in range(5)]
    assert len({file.facts for file in index.files}) == 1


def test_generated_code_comes_last():
    text = b"def make_order():\n    return 1\n"
    index = index_in_memory(tree({"a.py": ("generated", text), "b.py": ("production", text)}))
    assert paths(index, lexical.bm25f(index, "make order")) == ["b.py", "a.py"]


def test_the_order_of_the_files_and_the_hash_seed_decide_nothing(shop):
    items = list(FILES.items())
    random.Random(3).shuffle(items)
    again = index_in_memory(tree(dict(items)))
    assert again.tables == shop.tables
    script = (
        "from tests.retrieval.conftest import FILES, tree\n"
        "from harnesses.retrieval import lexical, names\n"
        "from harnesses.retrieval.index import encode_tables, index_in_memory\n"
        "from hashlib import sha256\n"
        "i = index_in_memory(tree(FILES))\n"
        "q = 'fetch order total of the server'\n"
        "lists = (lexical.bm25f, lexical.keyword, names.symbols, names.fuzzy)\n"
        "print(sha256(encode_tables(i.tables)).hexdigest(), [f(i, q) for f in lists])\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(said) == 1


def test_a_manifest_names_paths_classes_modes_and_contents():
    one = tree({"a.py": ("production", b"x = 1\n")})
    others = [
        tree({"b.py": ("production", b"x = 1\n")}),
        tree({"a.py": ("test", b"x = 1\n")}),
        tree({"a.py": ("production", b"x = 2\n")}),
        snapshot([snapshot_file("a.py", "100755", b"x = 1\n", "production")]),
    ]
    digests = {manifest_digest(tree_) for tree_ in (one, *others)}
    assert len(digests) == 5
