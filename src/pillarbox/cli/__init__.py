"""The command `pillarbox`: words for people, JSON for programs, exit codes for both."""

from pillarbox.cli.app import main

__all__ = ["main"]
