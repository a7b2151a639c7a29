"""The statements of this package, and the text form of the arrays that are their parameters.

psycopg would choose an array's type by its values, and each choice is another prepared statement: settles of sixteen
lanes would prepare dozens of the same text. The statements cast, so text is enough.
"""

from __future__ import annotations

from collections.abc import Iterable


def array(values: Iterable[object]) -> str:
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)


def storable(text: str) -> str:
    """What `text` can hold: no NUL, no lone surrogates. Errors quote what brokers and callables said."""
    return text.replace("\0", "�").encode("utf-8", "replace").decode("utf-8")
