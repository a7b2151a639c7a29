"""The file proposes routes, the database's stored ones are executed (DESIGN 2.3)."""

from __future__ import annotations

from collections.abc import Sequence

from pillarbox.admin.audit import note
from pillarbox.config import Config, RouteConfig
from pillarbox.errors import Refused
from pillarbox.events import Emit, RouteIdle, Warned
from pillarbox.ports import RouteState, Survey
from pillarbox.wiring.storage import Routes

MANY = 1_000_000


class Proposal:
    """What a starting relay does about the routes of its file, when it has first seen the stored ones."""

    def __init__(self, config: Config, routes: Routes, emit: Emit) -> None:
        self._config, self._routes, self._emit = config, routes, emit
        self._told: list[str] = []

    def __call__(self, survey: Survey) -> None:
        stored = {route.name for route in survey.routes}
        proposed = self._config.routes
        if not stored:
            first = {name: (route.definition(), route.start or "beginning") for name, route in proposed.items()}
            if first:  # if another relay was quicker, its file was the first
                self._routes.store_first(first, note("run: the first routes"))
            return
        for name, route in proposed.items():
            if name not in stored:
                self._propose_new(name, route, sorted(stored - proposed.keys()))
        self.tell_differences(survey.routes)

    def _propose_new(self, name: str, route: RouteConfig, missing: list[str]) -> None:
        if route.start is None:
            self._emit(RouteIdle(name, self._why_not(name, missing)))
            return
        try:
            self._routes.store(name, route.definition(), route.start, note("run: a new route"))
        except Refused as error:  # another relay was quicker
            self._emit(RouteIdle(name, str(error)))

    def _why_not(self, name: str, missing: list[str]) -> str:
        count = self._routes.in_log()
        many = "more than a million messages" if count > MANY else f"at most {count} messages"
        why = f'is new beside stored routes: say start = "beginning" (it would send {many}) or start = "now".'
        if missing:
            why += (
                f" Stored and not in this file: {', '.join(missing)}. If it is one of them under a new name: "
                f"`pillarbox route rename {missing[0]} {name}`."
            )
        return why

    def tell_differences(self, routes: Sequence[RouteState]) -> None:
        """Stored routes are executed whatever the file says; while it says otherwise that is a warning."""
        proposed = self._config.routes
        differ = sorted(r.name for r in routes if r.name in proposed and proposed[r.name].definition() != r.definition)
        if differ == self._told:
            return
        self._told = differ
        if differ:
            names = ", ".join(differ)
            detail = f"stored routes differ from this file and are executed as stored: {names}; see `route apply`"
        else:
            detail = "the file says what is stored"
        self._emit(Warned("route_differs", detail, active=bool(differ)))
