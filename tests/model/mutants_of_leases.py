"""More rules of the relay broken in the real code: leases, terms, hand-overs, people."""

from typing import Any

import pytest

from pillarbox.relay.engine import Engine
from pillarbox.relay.lane import plan as plans
from pillarbox.relay.lane.holds import LIVE_STATES
from pillarbox.relay.lane.window import Window
from pillarbox.relay.publish import Publisher
from pillarbox.relay.service import RouteService
from pillarbox.relay.tenure import Tenure
from tests.model.mutants import MUTANTS, mutant, wrap

# ------------------------------------------------------------------ leases and terms (R1-R3, R12-R15)


@mutant
def no_deadline(patch: pytest.MonkeyPatch) -> None:
    """A relay goes on after its lease."""
    patch.setattr(Tenure, "may_send", lambda tenure: tenure.joined)


@mutant
def deadline_is_asked_once_a_step(patch: pytest.MonkeyPatch) -> None:
    """A pause inside a step is not noticed."""
    wrap(patch, Publisher, "send_some", lambda original, p, now, _deadline: original(p, now, lambda: True))


@mutant
def expelled_goes_on(patch: pytest.MonkeyPatch) -> None:
    """Who was expelled joins again under the same id and keeps its lanes."""

    def expelled(_original: Any, tenure: Tenure) -> None:
        tenure.joined = False

    wrap(patch, Tenure, "expelled", expelled)
    wrap(patch, Tenure, "renew", lambda original, t, serves: original(t, serves) or original(t, serves))


@mutant
def memory_kept_after_doubt(patch: pytest.MonkeyPatch) -> None:
    """A lost reply is forgotten, the lanes are not."""
    patch.setattr(Engine, "_doubt_all", lambda _engine, _reason, _now: None)


@mutant
def own_lanes_not_taken_anew(patch: pytest.MonkeyPatch) -> None:
    """After a doubt the lanes stay ours in the database and nobody works them."""
    patch.setattr(Tenure, "retake", lambda _tenure, _lanes: [])


@mutant
def unknown_lanes_stay_unknown(patch: pytest.MonkeyPatch) -> None:
    """A take whose reply was lost is never noticed."""
    patch.setattr(Tenure, "unknown", lambda *_words: [])


@mutant
def taken_anew_without_need(patch: pytest.MonkeyPatch) -> None:
    """Each look takes all lanes anew, in doubt or not."""
    patch.setattr(Tenure, "unknown", lambda t, survey, route, _known: [
        (route, x.lane) for x in survey.lanes if x.route == route and x.owner == t.id])  # fmt: skip


@mutant
def loaded_before_the_take(patch: pytest.MonkeyPatch) -> None:
    """Hold rows are looked at before the lane is ours."""
    held: dict[str, Any] = {}

    def take(original: Any, tenure: Tenure, route: str, wanted: int) -> Any:
        held[route] = tenure.leases.load(route, range(64))
        return original(tenure, route, wanted)

    def take_in(original: Any, service: RouteService, taken: Any, now: float) -> None:
        leases = service.leases
        early = held.pop(service.route, None)
        service.leases = leases if early is None else _Early(early)
        try:
            original(service, taken, now)
        finally:
            service.leases = leases

    wrap(patch, Tenure, "take", take)
    wrap(patch, RouteService, "take_in", take_in)


class _Early:
    def __init__(self, held: Any) -> None:
        self.held = held

    def load(self, _route: str, lanes: Any) -> Any:
        return [h for h in self.held if h.lane in lanes and (h.state in LIVE_STATES or h.ahead)]


@mutant
def given_back_on_the_wire(patch: pytest.MonkeyPatch) -> None:
    """A lane is let go with messages unanswered."""
    patch.setattr(RouteService, "_nothing_moves", lambda _service, window: plans.plan(window, 0.0) is None)


@mutant
def given_back_unsettled(patch: pytest.MonkeyPatch) -> None:
    """A lane is let go with what was accepted not settled."""

    def nothing(original: Any, service: RouteService, window: Window) -> bool:
        return not (window.ready or service.flight.wire or window.stopped)

    wrap(patch, RouteService, "_nothing_moves", nothing)


@mutant
def never_given_back(patch: pytest.MonkeyPatch) -> None:
    """A relay keeps more than its share and waits for the end of its grace."""
    patch.setattr(RouteService, "_nothing_moves", lambda _service, _window: False)


@mutant
def done_is_kept(patch: pytest.MonkeyPatch) -> None:
    """What was accepted stays in memory when a lane is lost."""
    patch.setattr(Window, "forgotten", lambda _window: set())


# ------------------------------------------------------------------ people (R11)


@mutant
def operators_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    """A relay never looks at hold rows again."""
    patch.setattr(RouteService, "look", lambda _service, _survey, _now: None)


@mutant
def stale_is_taken_as_written(patch: pytest.MonkeyPatch) -> None:
    """A row that an operator changed counts as written by the relay."""
    wrap(patch, plans, "apply", lambda original, p, settled: original(p, settled._replace(stale=False)))
    patch.setattr("pillarbox.relay.settle.apply", plans.apply)


ALL = MUTANTS
