import pytest

from harnesses.retrieval.tokens import count_tokens, query_words, tokens_of, words


@pytest.mark.parametrize(
    ("word", "tokens"),
    [
        ("getHTTPResponse_2", ("gethttpresponse_2", "get", "http", "response", "2")),
        ("HTTPServer", ("httpserver", "http", "server")),
        ("snake_case", ("snake_case", "snake", "case")),
        ("__init__", ("__init__", "init")),
        ("plain", ("plain",)),
        ("x", ("x",)),
        ("___", ("___",)),
        ("größeÄndern", ("grösseändern", "grösse", "ändern")),
        ("ПривітСвіт", ("привітсвіт", "привіт", "світ")),
        ("ﬁnd", ("find",)),  # a ligature becomes its letters
        ("İstanbul", ("i̇stanbul",)),  # a dotted İ keeps its dot
    ],
)
def test_a_word_gives_itself_and_its_parts(word, tokens):
    assert tokens_of(word) == tokens


def test_tokens_are_counted_over_all_spellings():
    counted = count_tokens(words("readFile read_file READ"))
    assert counted["read"] == 3
    assert counted["file"] == 2
    assert counted["readfile"] == 1


def test_a_run_that_is_too_long_is_data_and_not_a_word():
    assert dict(words("a" * 64 + " " + "b" * 65)) == {"a" * 64: 1}


def test_a_query_loses_stop_words_and_conventional_commit_words():
    assert query_words("fix(client): add the retry_count to Client") == [
        "client",
        "retry_count",
        "Client",
    ]


def test_a_query_of_stop_words_alone_keeps_them():
    assert query_words("the fix of it") == ["the", "fix", "of", "it"]


@pytest.mark.parametrize("query", ["", "*", ".*", " \t ", "+-()"])
def test_a_query_without_a_word_has_no_words(query):
    assert query_words(query) == []
