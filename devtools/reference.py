"""The reference pages, made from the code: every setting from its model, every command from the command line itself."""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import typer
from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pillarbox.brokers import registry
from pillarbox.cli import app as cli
from pillarbox.cli.session import Exit
from pillarbox.config import DatabaseConfig, LogConfig, MatchConfig, RelayConfig, RouteConfig, SinkConfig
from pillarbox.config.values import spoken

MADE = "<!-- Made by `./dev docs` from the code; change the code instead. -->\n"

CONFIGURATION = """# Configuration

One file, the environment and flags make one configuration; the nearest hand wins: flag, environment, file, default.

- **File**: `--config FILE` before or after the command, else `PILLARBOX_CONFIG`, else `./pillarbox.toml`. TOML, or YAML
  with `pip install 'pillarbox[yaml]'`. `pillarbox init` writes one to begin with.
- **Environment**: `PILLARBOX_SECTION__NAME`, such as `PILLARBOX_DATABASE__URL` or `PILLARBOX_SINKS__MAIN__PATH`. Case
  does not matter, a hyphen in a name is an underscore, and a list or a table is written as JSON.
- **Flags**: `--set SECTION.NAME=VALUE`, as often as you like. They are seen in the process list: no place for secrets.
- **References**: any string may be, or contain, `${ENVIRONMENT_VARIABLE}`; or be `file:/path` (its last newline is
  dropped) or `call:package.module:function`, which is called without arguments. `$$` is a dollar. Those in `[database]`
  and `[sinks]` are read again at each connect, so passwords may rotate; all others once, at the start.
- **Times** are seconds or say their unit: `300`, `"5m"`, `"7 days"`, `"2ms"`. **Sizes** likewise: `"32 MiB"`.

`pillarbox config check` finds every problem at once, with its exact key path; `pillarbox config show` shows what is in
force, secrets masked.

```toml
[database]
url = "postgresql://shop@db.internal:5432/shop"
password = "file:/run/secrets/database"

[sinks.main]
kind = "kafka"
bootstrap_servers = "kafka-1:9092,kafka-2:9092"

[routes.orders]
sink = "main"
match = { aggregate = ["order*"], header = { city = ["Oslo", "Bergen"] } }
```
"""

FINDINGS = """## What `config check` also finds

Errors stop a relay from starting; warnings do not, and are logged when it starts.

| finding | level |
|---|---|
| a reference that cannot be resolved: variable, file or function | error |
| `postgresql+driver://` URLs, with the corrected one | error |
| more than 32 segments: `log.retention` divided by `log.period` | error |
| a route whose sink is not there; a topic's template with a field no message has | error |
| what only a sink's kind knows: a missing path, a setting its library refuses | error |
| `{type}` in the topic of an ordered route: nothing orders messages across topics | warning |
| no `database.maintenance_url` behind what looks like a pooler | warning |
| a sink that takes smaller messages than `add` does by default (900,000 bytes) | warning |
| `relay.lease`, `relay.send_timeout` or `relay.poll_max` above the default, and by how much that delays delivery | warning |
| a sink without a route, no route at all, no port for probes, a password in the file itself | warning |
"""

SECTIONS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("[database]", "", DatabaseConfig),
    ("[relay]", "", RelayConfig),
    ("[log]", "", LogConfig),
    ("[sinks.NAME]", "Names have letters, digits, `_`, `.` and `-`. What else a sink takes depends on its kind.", SinkConfig),
    ("[routes.NAME]", "The database stores a route's definition; the file proposes (see `pillarbox route`).", RouteConfig),
    ("[routes.NAME.match]", "Lists of globs, or one glob. All conditions must hold; none at all is everything.", MatchConfig),
)  # fmt: skip


def configuration() -> str:
    """docs/configuration.md"""
    parts = [CONFIGURATION]
    for title, prose, model in SECTIONS:
        parts.append("\n".join([f"## `{title}`", "", *([prose, ""] if prose else []), _table(model)]))
        if model is SinkConfig:
            parts += [f'### `kind = "{kind}"`\n\n{_kind(kind)}' for kind in sorted(registry.KINDS)]
    return MADE + "\n" + "\n".join(f"{part.rstrip()}\n" for part in [*parts, FINDINGS])


def _kind(kind: str) -> str:
    model = registry.settings_of(kind)
    extra = registry.KINDS[kind].extra
    needs = f"Needs `pip install 'pillarbox[{extra}]'`.\n\n" if extra else ""
    return needs + (_table(model) if model.model_fields else "Takes nothing else.")


def _table(model: type[BaseModel]) -> str:
    rows = [_row(name, field) for name, field in model.model_fields.items()]
    return "\n".join(["| setting | takes | default | meaning |", "|---|---|---|---|", *rows])


def _row(name: str, field: FieldInfo) -> str:
    meaning = _cell(field.description or "")
    return f"| `{field.alias or name}` | {_cell(_takes(field))} | {_cell(_default(field))} | {meaning} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


WORDS = {
    "str": "text", "int": "number", "float": "number", "bool": "true or false", "Duration": "time", "Size": "size",
    "Path": "path", "Any": "anything", "Name": "name", "Globs": "globs", "SinkClass": "`single`, `gaps`, `fail-stop`",
}  # fmt: skip


def _takes(field: FieldInfo) -> str:
    validators = {getattr(getattr(each, "func", None), "__name__", "") for each in field.metadata}
    if "seconds" in validators or "seconds" in repr(field.annotation):
        kind = "time"
    elif "size" in validators:
        kind = "size"
    else:
        kind = _kind_of(field.annotation)
    return f"{kind}{_range(field, is_time=kind == 'time')}"


def _kind_of(annotation: Any) -> str:
    text = re.sub(r"\b(?:[a-z_]\w*\.)+", "", str(annotation))
    if "Literal" in text:
        return ", ".join(f"`{word}`" for word in re.findall(r"'([^']+)'", text))
    if "listed" in text or text.startswith("tuple"):
        return "globs" if "dict" not in text else "table of globs"
    if text.startswith("dict"):
        return "table"
    if "MatchConfig" in text:
        return "table"
    name = re.sub(r"<(?:class|enum) '(\w+)'>", r"\1", text).split("|")[0].strip()
    return WORDS.get(name, name)


def _range(field: FieldInfo, *, is_time: bool) -> str:
    say = spoken if is_time else "{:,}".format
    low = next((each.ge for each in field.metadata if isinstance(each, Ge)), None)
    above = next((each.gt for each in field.metadata if isinstance(each, Gt)), None)
    high = next((each.le for each in field.metadata if isinstance(each, Le)), None)
    ends = [say(end) if end is not None else "" for end in (low if low is not None else above, high)]
    return f", {ends[0]} – {ends[1]}" if all(ends) else f", at least {ends[0]}" if ends[0] else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ("", (), {}) or isinstance(value, BaseModel):
        return ""
    if isinstance(value, float) and "seconds" in repr(field.metadata):
        return f"`{spoken(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


COMMANDS = """# Commands

Every command takes `--config FILE`, `--set SECTION.NAME=VALUE` and `--json`, before or after its own words, and has a
twin in the environment for each option: `PILLARBOX_COMMAND_OPTION`, such as `PILLARBOX_RUN_LISTEN` (and
`PILLARBOX_CONFIG`, `PILLARBOX_JSON`). Answers are coloured for a terminal and plain into a pipe; an error is one line on
standard error, `pillarbox: what happened. What to do.`

| exit code | meaning |
|---|---|
"""
CODES = {
    Exit.DONE: "done",
    Exit.FAILED: "something went wrong, or what was looked at is not well",
    Exit.USAGE: "the command line is wrong",
    Exit.CONFIG: "the configuration is wrong",
    Exit.DATABASE: "the database is unreachable, not installed, not permitted, or of another version",
    Exit.REFUSED: "nothing was changed: the request was refused, or not confirmed",
    Exit.INTERRUPTED: "interrupted",
}


def commands() -> str:
    """docs/commands.md"""
    for module in cli.MODULES:
        import_module(f"pillarbox.cli.{module}")
    root = typer.main.get_command(cli.app)
    codes = "".join(f"| {int(code)} | {CODES[code]} |\n" for code in Exit)
    parts = [_command(words, command) for words, command in _walk("pillarbox", root)]
    return MADE + "\n" + COMMANDS + codes + "\n" + "\n".join(parts)


def _walk(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    for name, each in command.commands.items():
        if hasattr(each, "commands"):
            yield from _walk(f"{words} {name}", each)
        elif not each.hidden:
            yield f"{words} {name}", each


def _command(words: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each for each in command.params if each.param_type_name == "option" and not getattr(each, "hidden", False)
    ]
    usage = " ".join([words, *(_usage(each) for each in arguments), *(["[OPTIONS]"] if options else [])])
    lines = [f"## `{words}`", "", _plain(command.help or ""), "", "```text", usage, "```", ""]
    named = [(f"`{_usage(each)}`", each) for each in arguments] + [(_names(each), each) for each in options]
    if named:
        lines += ["| | default | |", "|---|---|---|"]
        lines += [f"| {name} | {_cell(_preset(each))} | {_cell(_plain(each.help or ''))} |" for name, each in named]
        lines.append("")
    return "\n".join(lines)


def _plain(text: str) -> str:
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text.replace("\x08", "").strip())


def _usage(argument: Any) -> str:
    name = re.sub(r"[\[\].…]", "", argument.metavar or argument.name.upper()) + ("…" if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _names(option: Any) -> str:
    value = "" if getattr(option, "is_flag", False) else f" {option.metavar or option.name.upper()}"
    return ", ".join(f"`{name}{value}`" for name in [*option.opts, *option.secondary_opts])


def _preset(option: Any) -> str:
    if option.required:
        return "**required**"
    value = option.default
    return "" if value in (None, False, (), [], "") or callable(value) else f"`{value}`"


PAGES: dict[str, Callable[[], str]] = {"docs/configuration.md": configuration, "docs/commands.md": commands}
