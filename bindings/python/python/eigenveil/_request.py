"""Requests: keyword arguments as the JSON of the compiled part, which checks them and says which is wrong; answers."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .errors import InputError


def to_json(arguments: Mapping[str, Any]) -> str:
    """The request as JSON."""
    return json.dumps(given(arguments))


def read_json(text: str) -> dict[str, Any]:
    """The answer to a request."""
    found: dict[str, Any] = json.loads(text)
    return found


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are given, as JSON values."""
    return {name: plain(name, value) for name, value in arguments.items() if value is not None and value is not False}


def plain(name: str, value: Any) -> Any:
    """Numbers and words as JSON values. Any other value is refused but not printed, because it may be rows."""
    if isinstance(value, Mapping):
        return {key: plain(key, own) for key, own in value.items()}
    if is_many(value):
        return [plain(name, own) if isinstance(own, Mapping) else _plain(name, own) for own in value]
    return _plain(name, value)


def is_many(value: Any) -> bool:
    """Whether it is a sequence of values, and neither a text nor a table."""
    return isinstance(value, Iterable) and not isinstance(value, str) and getattr(value, "ndim", 1) == 1


def _plain(name: str, value: Any) -> Any:
    if not isinstance(value, (str, numbers.Number, np.generic)):
        raise InputError(f"{name} has a {type(value).__name__} where a number or a word must be; give one, or a list")
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, (str, int)):
        return value
    number = float(value)
    if not math.isfinite(number):
        raise InputError(f"{name} is {number}; it must be a finite number")
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
