"""The statements of this dialect, by name."""

from pillarbox.storage.sql import load

SQL = load(__name__, "pillarbox_")
