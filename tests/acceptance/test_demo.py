"""`pillarbox demo` as its user sees it, and its verdict when something is wrong."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox import demo
from pillarbox.demo.lag import Lag
from pillarbox.demo.picture import columns, lag_plot
from pillarbox.demo.stage import Stage
from pillarbox.testing.history import Sighting
from pillarbox.testing.readback import FileReadback

WORDS = [sys.executable, "-m", "pillarbox", "demo", "--seconds", "4", "--kills", "1", "--seed", "7"]


@pytest.mark.slow
def test_in_a_pipe_it_ends_with_the_verdict(tmp_path: Path) -> None:
    """Plain text, the three figures last, nothing on standard error, and a picture when one is wanted."""
    picture = tmp_path / "lag.png"
    done = subprocess.run([*WORDS, "--png", str(picture)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    *_, lost, reordered, duplicates = done.stdout.splitlines()
    assert (lost, reordered) == ("lost 0", "reordered 0")
    assert re.fullmatch(r"duplicates \d+ \(allowed: \d+\)", duplicates)
    assert "relay killed" in done.stdout
    assert "\x1b" not in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_json_is_one_object() -> None:
    """For programs: the figures on standard output, the story beside it."""
    done = subprocess.run([*WORDS, "--json"], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert (told["ok"], told["lost"], told["reordered"], len(told["kills"])) == (True, 0, 0, 1)


class Leaky(FileReadback):
    """A destination from which every hundredth message is missing."""

    def more(self) -> list[Sighting]:
        return [copy for copy in super().more() if int(copy.id[-6:], 16) % 100]


@pytest.mark.slow
def test_a_loss_is_told_and_ends_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict is read from the destination: what is not there was lost, whatever the relay thinks."""
    monkeypatch.setattr(Stage, "readback", lambda stage: Leaky(stage.folder / "orders.jsonl"))
    monkeypatch.setattr(demo.play, "DRAIN_WITHIN", 3.0)
    assert demo.run(demo.Wishes(seconds=3.0, kills=0, seed=7)) == 1
    lost, reordered, _ = capsys.readouterr().out.splitlines()[-3:]
    assert int(lost.removeprefix("lost ")) > 0
    assert reordered == "reordered 0"


def test_postgres_and_kafka_need_their_addresses() -> None:
    """Without them it says which options are missing, as wrong usage."""
    done = subprocess.run(
        [*WORDS, "--postgres-kafka"], capture_output=True, text=True, check=False, env={"PATH": "", "COLUMNS": "200"}
    )
    assert done.returncode == 2
    assert "--postgres" in done.stderr


def test_lag_is_the_age_of_the_oldest_that_is_missing() -> None:
    """Commits and sightings in any order; a message seen before its commit was noted never waits."""
    lag = Lag()
    lag.arrived([Sighting("early", None)])
    for id, at in (("early", 0.5), ("a", 1.0), ("b", 2.0)):
        lag.committed(id, at)
    assert lag.sample(4.0) == 3.0
    lag.arrived([Sighting("a", None)])
    assert lag.sample(4.0) == 2.0
    lag.arrived([Sighting("b", None), Sighting("b", None)])
    assert (lag.sample(5.0), len(lag.copies)) == (0.0, 4)


def test_the_plot_shows_the_highest_lag_and_every_kill() -> None:
    """However narrow it is, a short peak is not averaged away, and two kills are two marks."""
    times = [second / 10 for second in range(100)]
    lags = [5.0 if second == 50 else 0.0 for second in range(100)]
    assert max(columns(times, lags, 20, times[-1])) == 5.0
    text = lag_plot(times, lags, [2.0, 8.0], 60, 6).plain
    assert text.count("✗") == 2
    assert "  5.00┤" in text
    assert all(len(line) <= 60 for line in text.splitlines())
