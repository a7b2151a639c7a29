"""`./dev simulate --schedules N --seed S`: the real engine under seeded schedules; what fails is shrunk and printed."""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from pillarbox.testing.simulator import Result, draw, run, shrink

SHOWN = 120  # lines of a trace, half from its beginning


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev simulate", description=__doc__)
    parser.add_argument("--schedules", type=int, default=500, help="how many (500)")
    parser.add_argument("--seed", type=int, default=0, help="the first one's number (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (one a core)")
    parser.add_argument("--trace", action="store_true", help="show what happened in the shrunk schedule, step by step")
    chosen = parser.parse_args(words)
    started, kinds, copies, failed = time.monotonic(), Counter[str](), 0, []
    seeds = range(chosen.seed, chosen.seed + chosen.schedules)
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for seed, (kind, result) in zip(seeds, pool.map(one, seeds, chunksize=8), strict=True):
            kinds[kind] += 1
            copies += result.copies
            if result.broken:
                failed.append(seed)
                print(f"seed {seed}: {result.broken}", flush=True)
    for seed in failed[:3]:
        show(seed, trace=chosen.trace)
    took = time.monotonic() - started
    told = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    print(f"{chosen.schedules} schedules ({told}), {copies} deliveries, {len(failed)} failed, {took:.0f} s")
    return 1 if failed else 0


def one(seed: int) -> tuple[str, Result]:
    schedule = draw(seed)
    return schedule.kind, run(schedule)


def show(seed: int, *, trace: bool) -> None:
    """The smallest schedule that breaks the same promise."""
    schedule = draw(seed)
    promise = run(schedule).promise
    small = shrink(schedule, lambda smaller: run(smaller).promise == promise)
    print(f"\nseed {seed}, shrunk:\n{small}\n{run(small).broken}")
    if trace:
        lines: list[str] = []
        run(small, trace=lines.append)
        print("\n".join(lines if len(lines) <= SHOWN else [*lines[: SHOWN // 2], "…", *lines[-SHOWN // 2 :]]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
