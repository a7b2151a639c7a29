"""Who works how many lanes (R15)."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from pillarbox.ports import LaneState, RelayState
from pillarbox.relay.sharing import PATIENCE, Orphans, Share, share

LEASE = 5.0


def relay(n: int, settled_for: float = 60.0, serves: tuple[str, ...] = ("main",)) -> RelayState:
    return RelayState(UUID(int=n), serves, settled_for)


def lanes(*owners: int | None) -> list[LaneState]:
    return [LaneState("main", n, None if o is None else UUID(int=o), 1) for n, o in enumerate(owners)]


def test_one_relay_takes_everything() -> None:
    """Also while it is new: nobody else is there."""
    assert share(UUID(int=1), "main", lanes(*[None] * 16), [relay(1, 0.0)], LEASE) == Share(16, 0)


def test_a_newcomer_is_not_counted_for_a_lease() -> None:
    """So a crash loop takes no lanes from its neighbours."""
    relays = [relay(1), relay(2, LEASE - 0.1)]
    assert share(UUID(int=2), "main", lanes(*[1] * 4), relays, LEASE) == Share(0, 0)
    assert share(UUID(int=1), "main", lanes(*[1] * 4), relays, LEASE) == Share(0, 0)
    relays = [relay(1), relay(2, LEASE)]
    assert share(UUID(int=1), "main", lanes(*[1] * 4), relays, LEASE) == Share(0, 2)
    assert share(UUID(int=2), "main", lanes(None, None, 1, 1), relays, LEASE) == Share(2, 0)


def test_who_does_not_serve_the_route_has_no_share() -> None:
    """It gives back what it has."""
    relays = [relay(1), relay(2, serves=("other",))]
    assert share(UUID(int=2), "main", lanes(2, 1), relays, LEASE) == Share(0, 1)
    assert share(UUID(int=1), "main", lanes(2, 1), relays, LEASE) == Share(1, 0)


@given(st.integers(1, 64), st.integers(1, 9), st.randoms(use_true_random=False))
def test_shares_are_even_and_cover_everything(count: int, relays: int, rnd: object) -> None:
    """What all take and keep together are all lanes, and no two differ by more than one."""
    owners = [rnd.choice([None, *range(1, relays + 1)]) for _ in range(count)]  # type: ignore[attr-defined]
    living = [relay(n) for n in range(1, relays + 1)]
    ends = []
    for n in range(1, relays + 1):
        mine = share(UUID(int=n), "main", lanes(*owners), living, LEASE)
        assert min(mine) == 0
        ends.append(owners.count(n) + mine.take - mine.give_back)
    assert sum(ends) == count
    assert max(ends) - min(ends) <= 1


def test_a_lane_without_an_owner_is_anybodys_after_a_while() -> None:
    """Two ticks of patience, also for a lane whose owner is no more; an owner in between begins anew."""
    orphans = Orphans()
    for _ in range(PATIENCE):
        assert orphans.after_tick(lanes(None, 1), [relay(1)]) == set()
    assert orphans.after_tick(lanes(None, 1), [relay(1)]) == {"main"}
    assert orphans.after_tick(lanes(1, 1), [relay(1)]) == set()
    for _ in range(PATIENCE):
        assert orphans.after_tick(lanes(9, 1), [relay(1)]) == set()
    assert orphans.after_tick(lanes(9, 1), [relay(1)]) == {"main"}
