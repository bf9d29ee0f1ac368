from harnesses.retrieval import graph
from harnesses.retrieval.index import index_in_memory
from tests.retrieval.conftest import tree


def edges_of(index, path):
    number = index.number_of[path]
    return {index.files[other].path: weight for other, weight in index.tables.edges[number]}


def test_python_imports_and_calls_are_edges(shop):
    uses = edges_of(shop, "shop/client.py")
    assert uses == {"shop/orders.py": 3 * graph.ONE}  # two imported names and one call


def test_go_packages_are_resolved_through_the_module_path(shop):
    assert edges_of(shop, "internal/server/server.go") == {
        "internal/store/store.go": 2 * graph.ONE  # store.DB and Save
    }


def test_neighbours_use_or_are_used_heaviest_first(shop):
    around = graph.neighbours(shop.tables.edges, shop.number_of["shop/client.py"])
    assert [shop.files[other].path for other in around] == [
        "shop/orders.py",
        "tests/test_client.py",
    ]
    users = graph.users(shop.tables.edges, shop.number_of["internal/store/store.go"])
    assert [shop.files[other].path for other in users] == ["internal/server/server.go"]


def test_a_name_with_several_definitions_gives_each_a_part_and_with_many_none():
    one = b"def run_it():\n    pass\n"
    for copies, weight in ((3, graph.ONE // 3), (4, 0)):
        files = {f"m{n}.py": ("production", one) for n in range(copies)}
        index = index_in_memory(tree({**files, "z.py": ("production", b"run_it()\n")}))
        assert edges_of(index, "z.py") == {path: weight for path in files if weight}


def test_relative_imports_and_names_of_the_same_go_package():
    index = index_in_memory(
        tree(
            {
                "src/pkg/__init__.py": ("production", b"from .core import run\n"),
                "src/pkg/core.py": ("production", b"from pkg.deep.util import helper\n"),
                "src/pkg/deep/util.py": ("production", b"from ..core import run\nhelper = 1\n"),
                "a/one.go": ("production", b"package a\nfunc one() { two() }\n"),
                "a/two.go": ("production", b"package a\nfunc two() {}\n"),
                "b/two.go": ("production", b"package b\nfunc two() {}\n"),
            }
        )
    )
    assert edges_of(index, "src/pkg/__init__.py") == {"src/pkg/core.py": graph.ONE}
    assert edges_of(index, "src/pkg/core.py") == {"src/pkg/deep/util.py": graph.ONE}
    assert edges_of(index, "src/pkg/deep/util.py") == {"src/pkg/core.py": graph.ONE}
    assert edges_of(index, "a/one.go") == {"a/two.go": graph.ONE}


def test_at_most_fifteen_neighbours():
    files = {f"m{n:02}.py": ("production", b"import hub\n") for n in range(20)}
    index = index_in_memory(tree({**files, "hub.py": ("production", b"x = 1\n")}))
    around = graph.neighbours(index.tables.edges, index.number_of["hub.py"])
    assert [index.files[other].path for other in around] == [f"m{n:02}.py" for n in range(15)]
