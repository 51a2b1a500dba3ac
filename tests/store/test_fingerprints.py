"""The fingerprint: which payloads are the same request."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tenure.store.protocol import Store
from tests.store.steps import new, offer

CASES = (Path(__file__).parents[1] / "cases" / "fingerprints.jsonl").read_text("utf-8").splitlines()

MORE = [
    {"a": '{"x": 1e2}', "b": '{"x": 100}', "same": True},
    {"a": '{"x": 1.50}', "b": '{"x": 1.5}', "same": False},
    {"a": '{"x": -0}', "b": '{"x": 0}', "same": True},
    {"a": '{"x": 1, "x": 2}', "b": '{"x": 2}', "same": True},
    {"a": '{"x": "\\n\\u001f"}', "b": '{"x": "\\u000a\\u001F"}', "same": True},
    {"a": '{"é": 1, "zz": 2}', "b": '{"zz": 2, "é": 1}', "same": True},
]


@pytest.mark.parametrize("case", [*map(json.loads, CASES), *MORE], ids=lambda case: f"{case['a']} {case['b']}")
def test_payloads_are_the_same_request_or_not(store: Store, case: dict[str, Any]) -> None:
    offer(store, new(case["a"], key="a"))
    [answer] = offer(store, new(case["b"], key="a"))
    assert answer.answer == ("same" if case["same"] else "conflict")


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        ('{"x":1,   "y":[true,null]}', '{"x": 1, "y": [true, null]}'),
        ('{"bb": 1, "a": 2, "é": 3, "B": 4}', '{"B": 4, "a": 2, "bb": 1, "é": 3}'),
        ('{"n": [1e2, 1.50, -0, 1e-3, 0.0, 12E+1]}', '{"n": [100, 1.50, 0, 0.001, 0.0, 120]}'),
        ('{"s": "\\u00e9\\u001f\\/\\n\\ud83d\\ude00\\""}', '{"s": "é\\u001f/\\n😀\\""}'),
    ],
)
def test_the_fingerprint_is_of_the_oldest_name_and_the_stored_text(store: Store, payload: str, stored: str) -> None:
    offer(store, new(payload, key="a"), fingerprint_kind="old")
    [answer] = offer(store, new(payload, key="a"), fingerprint_kind="old")
    assert answer.held == hashlib.sha256(f"old\n{stored}".encode()).hexdigest()
