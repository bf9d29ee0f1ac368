"""A small tree in two languages, and the index of it."""

from collections.abc import Mapping

import pytest

from harnesses.retrieval.index import CommitIndex, index_in_memory
from harnesses.retrieval.snapshot import FileClass, Snapshot, snapshot, snapshot_file

CLIENT = b'''"""The client."""

import os
from shop.orders import Order, parse_order

TIMEOUT = 30


class HttpClient:
    """Talks to the shop."""

    retries = 3

    def fetch_order(self, number):
        raw = self._get(f"/orders/{number}")
        return parse_order(raw)

    def _get(self, path):
        return os.environ["BASE"] + path
'''
ORDERS = b'''"""Orders and their totals."""


class Order:
    def __init__(self, lines):
        self.lines = lines

    def total(self):
        return sum(line.price for line in self.lines)


def parse_order(raw):
    return Order(raw.split(","))
'''
TEST = b"""from shop.client import HttpClient


def test_fetch_order_gives_the_total():
    assert HttpClient().fetch_order(1).total() == 0
"""
SERVER = b"""package server

import (
	"fmt"
	store "example.org/shop/internal/store"
)

type Server struct{ db *store.DB }

func (s *Server) Handle(name string) error {
	if err := s.db.Save(name); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	return nil
}
"""
STORE = b"""package store

type DB struct{}

func (d *DB) Save(name string) error { return nil }

func Open(path string) *DB { return &DB{} }
"""

FILES: dict[str, tuple[FileClass, bytes]] = {
    "README.md": ("docs", b"# Shop\n\nFetch an order and its total.\n"),
    "go.mod": ("dependency", b"module example.org/shop\n\ngo 1.24\n"),
    "internal/server/server.go": ("production", SERVER),
    "internal/store/store.go": ("production", STORE),
    "shop/__init__.py": ("production", b""),
    "shop/client.py": ("production", CLIENT),
    "shop/orders.py": ("production", ORDERS),
    "tests/test_client.py": ("test", TEST),
}


def tree(files: Mapping[str, tuple[FileClass, bytes]]) -> Snapshot:
    return snapshot(
        snapshot_file(path, "100644", content, file_class)
        for path, (file_class, content) in files.items()
    )


@pytest.fixture(scope="session")
def shop() -> CommitIndex:
    return index_in_memory(tree(FILES))
