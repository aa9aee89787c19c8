"""What a form of a metric Space takes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from negation_clip.metrics.json_lists import json_list

NUMBERS = st.one_of(st.integers(-(10**20), 10**20), st.floats(allow_nan=False))


@settings(deadline=None)
@given(st.lists(NUMBERS, min_size=1), st.lists(st.lists(st.text()), min_size=1))
def test_what_json_writes_is_read_back(numbers, texts):
    assert json_list("x", json.dumps(numbers), "a number") == numbers
    assert json_list("x", json.dumps(texts), "a text", nested=True) == texts


@pytest.mark.parametrize(
    ("text", "kind", "nested", "says"),
    [
        ("", "a number", False, "Answers must be a JSON list, each entry a number: Expecting value"),
        ("[" * 100_000, "a number", False, "Answers must be a JSON list, each entry a number: maximum recursion"),
        ("1" * 5000, "a number", False, "Answers must be a JSON list, each entry a number: Exceeds the limit"),
        ("[]", "a text", True, "list of lists, each entry a text, got \\[\\]"),
        ('{"a": 1}', "a number", False, "each entry a number, got {"),
        ("[[1], 2]", "a number", True, "row 1 is 2"),
        ("[[1, 2], [3, null]]", "a number", True, "row 1, entry 1 is null"),
        ("[0, true]", "a whole number", False, "entry 1 is true"),
        ("[0, 1.0]", "a whole number", False, "entry 1 is 1.0"),
        ("[99999999999999999999]", "a whole number", False, "entry 0 is 99999999999999999999"),
        ('["no", 0]', "a text", False, "entry 1 is 0"),
        ('[["no", "\\ud800"]]', "a text", True, "row 0, entry 1 is"),
        (f"[[1, -{'9' * 400}]]", "a number", True, "row 0, entry 1 is -9{36}"),
        (f'["{"x" * 99}"]', "a number", False, r'entry 0 is "x{36}\.\.\.$'),
    ],
)
def test_anything_else_is_named(text, kind, nested, says):
    with pytest.raises(ValueError, match=says) as caught:
        json_list("Answers", text, kind, nested)
    assert len(str(caught.value)) < 300
