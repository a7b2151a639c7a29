"""The configuration: one frozen value, read once, judged whole.

`load()` finds file and environment, `problems()` says everything that is wrong with it, `secret()` turns a reference
(`${ENV}`, `file:/path`, `call:package.module:function`) into what it stands for, at each connect.
"""

from pillarbox.config.load import SECTIONS, examine, load, told_of
from pillarbox.config.model import Config, DatabaseConfig, LogConfig, MatchConfig, RelayConfig, RouteConfig, SinkConfig
from pillarbox.config.problems import problems
from pillarbox.config.secrets import masked, secret
from pillarbox.config.values import Problem

__all__ = [
    "SECTIONS",
    "Config",
    "DatabaseConfig",
    "LogConfig",
    "MatchConfig",
    "Problem",
    "RelayConfig",
    "RouteConfig",
    "SinkConfig",
    "examine",
    "load",
    "masked",
    "problems",
    "secret",
    "told_of",
]
