"""The count of names and docstrings sees what it is made for."""

from __future__ import annotations

import ast

import pytest

from tests.tools.style.__main__ import bound_names, docstrings, has_subject, is_function_word


@pytest.mark.parametrize("name", ["of", "known", "_told", "of_sweep", "not_before", "asked"])
def test_a_function_word_is_no_name(name: str) -> None:
    assert is_function_word(name)


@pytest.mark.parametrize("name", ["trial", "known_trials", "asked_names", "best_of_rung", "__all__", "_", "x"])
def test_a_noun_is_a_name(name: str) -> None:
    assert not is_function_word(name)


def test_every_way_to_bind_a_name_counts() -> None:
    code = "import a as b\nc = d.e = 1\nwith f as g: pass\nfor h in i: pass\ndef j(k, *l, **m): pass\n[n for n in o]"
    assert sorted(name for name, _ in bound_names(ast.parse(code))) == sorted("bceghjklmn")


def test_docstrings_of_fields_count() -> None:
    code = '"""A module."""\nclass A:\n    """A class."""\n    x: int\n    """Of the trial."""\n'
    assert [text for text, _ in docstrings(ast.parse(code))] == ["A module.", "A class.", "Of the trial."]


@pytest.mark.parametrize("text", ["Of an ascent, at most.", "Likewise, by name.", "That train it then.", "By trial."])
def test_a_docstring_that_only_continues_has_no_subject(text: str) -> None:
    assert not has_subject(text)


@pytest.mark.parametrize("text", ["Most steps of an ascent.", "Return the best trial.", "The workers, by rank."])
def test_a_sentence_and_a_noun_phrase_have_one(text: str) -> None:
    assert has_subject(text)
