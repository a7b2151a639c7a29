"""The pictures of README, each from a real run: `./dev with -- python -m devtools.figures [NAME…]`."""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from devtools.servers import registry
from devtools.servers.kafka import Kafka
from devtools.wheel import ROOT
from pillarbox.clock import SystemClock
from pillarbox.demo.shop import Shop
from pillarbox.demo.stage import Stage, stage
from pillarbox.testing.process import RelayProcess
from pillarbox.testing.readback import KafkaReadback

IMAGES = ROOT / "docs" / "images"
UNTIL_KILLED, UNTIL_STARTED, AFTER = 8.0, 4.0, 8.0  # seconds; to start takes its own time
TICK = 0.05


def kills(path: Path) -> None:
    """`pillarbox demo`: SQLite to a file, the relay killed five times."""
    subprocess.run([Path(sys.prefix) / "bin" / "pillarbox", "demo", "--seed", "7", "--png", path], check=True)


def outage(path: Path) -> None:
    """PostgreSQL to Kafka: the broker is killed and comes back, while the shop goes on selling."""
    postgres, kafka = registry.start("postgres"), registry.start("kafka")
    try:
        url = postgres.variables["PILLARBOX_TEST_POSTGRES_URL"]
        with stage(url, kafka.variables["PILLARBOX_TEST_KAFKA_URL"].removeprefix("kafka://")) as built:
            samples, gone = watched(built, kafka.server)
    finally:
        kafka.close()
        postgres.close()
    draw(path, samples, gone)


def watched(built: Stage, broker: Kafka) -> tuple[list[tuple[float, int, int]], tuple[float, float]]:
    """(seconds, sold, delivered) at every tick, and when the broker was away."""
    clock, samples, delivered, over = SystemClock(), [], set(), threading.Event()
    shop = Shop(built.url, built.folder / "producer.jsonl", seed=7)
    relay = RelayProcess(built.config, built.folder / "relay.log")
    shop.furnish()
    readers = [KafkaReadback(built.kafka or "", built.topic)]
    relay.start()
    shop.begin()
    began = clock.mono()

    def watch() -> None:
        while not over.is_set():
            delivered.update(copy.id for copy in readers[-1].more())
            samples.append((clock.mono() - began, shop.sold, len(delivered)))
            clock.sleep(TICK)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        # Here and not in a thread of its own: a server ends with the thread that started it.
        clock.sleep(UNTIL_KILLED)
        broker.kill()
        down = clock.mono() - began
        clock.sleep(UNTIL_STARTED)
        broker.start_again()
        up = clock.mono() - began
        # A consumer that lived through the outage sits out its own back-off; this one is to see what there is.
        readers.append(KafkaReadback(built.kafka or "", built.topic))
        clock.sleep(AFTER)
    finally:
        over.set()
        watcher.join()
        shop.close()
        relay.stop()
        for reader in readers:
            reader.close()
    return samples, (down, up)


def draw(path: Path, samples: list[tuple[float, int, int]], gone: tuple[float, float]) -> None:
    times, sold, delivered = zip(*samples, strict=True)
    figure, axes = plt.subplots(figsize=(10, 4), dpi=120, layout="constrained")
    axes.axvspan(*gone, color="#c1121f", alpha=0.10, linewidth=0, label="Kafka is down")
    axes.plot(times, sold, color="#e07a1f", linewidth=3, label="committed with their orders")
    axes.plot(times, delivered, color="#2a6f97", linewidth=1.8, label="read back from Kafka")
    axes.set(
        xlabel="seconds",
        ylabel="messages",
        title="PostgreSQL → Kafka: an outage of the broker delays, and loses nothing",
        xlim=(0, times[-1]),
    )
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", frameon=False)
    figure.savefig(path)
    plt.close(figure)


FIGURES: Mapping[str, Callable[[Path], None]] = {"kills": kills, "outage": outage}


def main(words: list[str]) -> int:
    unknown = [word for word in words if word not in FIGURES]
    if unknown:
        print(f"dev: no figure {', '.join(unknown)}; known are {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    IMAGES.mkdir(exist_ok=True)
    for name in words or FIGURES:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / f"{name}.png"
            FIGURES[name](made)
            (IMAGES / f"{name}.png").write_bytes(made.read_bytes())
        print(f"wrote docs/images/{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
