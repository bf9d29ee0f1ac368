"""``ledger retrieval`` on a repository of three files."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run

FILES = {
    "shop/__init__.py": "",
    "shop/cart.py": "class Cart:\n    def total_price(self):\n        return sum(self.prices)\n",
    "shop/mail.py": "def send_mail(address):\n    return address\n",
    "tests/test_cart.py": "from shop.cart import Cart\n",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "shop-repository"
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for arguments in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "one"],
    ):
        subprocess.run(["git", "-C", str(folder), *arguments], check=True)
    return folder


def task_list(repository: Path, *tasks: tuple[list[str], str]) -> Path:
    head = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "HEAD"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    path = repository.parent / "tasks.jsonl"
    lines = [json.dumps({"base": head, "gold": gold, "query": query}) for gold, query in tasks]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_every_list_and_every_arm_is_scored(ledger: Run, repository: Path) -> None:
    tasks = task_list(
        repository,
        (["shop/cart.py"], "the total price of a cart is wrong"),
        (["shop/mail.py", "shop/cart.py"], "send_mail loses the address"),
    )
    ran = ledger("retrieval", "evaluate", str(tasks), "--repo", str(repository), "--json")
    assert ran.status == 0
    found = json.loads(ran.out)
    scores = {score["name"]: score for score in found["rankings"]}
    assert list(scores) == ["words", "bm25f", "names", "near", "H000", "H003", "H007"]
    assert scores["bm25f"]["recall@1"] == 0.75
    assert scores["bm25f"]["mrr"] == 1.0
    assert scores["bm25f"]["recall@10 - bm25f"] == [0.0, 0.0, 0.0]
    assert found["tasks"] == 2


def test_explain_shows_lists_and_votes(ledger: Run, repository: Path) -> None:
    ran = ledger("retrieval", "explain", "Cart total", "--repo", str(repository))
    assert ran.status == 0
    assert "   1  shop/cart.py:1-3 Cart\n" in ran.out
    assert "   1  shop/cart.py  by words, bm25f, names\n" in ran.out
    again = ledger("retrieval", "explain", "Cart total", "--repo", str(repository), "--json")
    assert json.loads(again.out)["fused"][0]["path"] == "shop/cart.py"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the list has no task"),
        ("{}", "line 1 is not a task"),
        ('{"base": "x", "gold": ["a"], "query": "q"}', "line 1 is not a task"),
    ],
)
def test_a_list_that_cannot_be_read(ledger: Run, repository: Path, content: str, said: str) -> None:
    path = repository.parent / "bad.jsonl"
    path.write_text(content)
    ran = ledger("retrieval", "evaluate", str(path), "--repo", str(repository))
    assert ran.status == 2
    assert said in ran.err


def test_files_and_commits_that_do_not_exist(ledger: Run, repository: Path) -> None:
    tasks = task_list(repository, (["shop/gone.py"], "anything"))
    ran = ledger("retrieval", "evaluate", str(tasks), "--repo", str(repository))
    assert (ran.status, "no file of shop/gone.py" in ran.err) == (2, True)
    ran = ledger("retrieval", "explain", "x", "--repo", str(repository), "--at", "nowhere")
    assert (ran.status, "has no commit 'nowhere'" in ran.err) == (2, True)
