"""`python -m tests.faults.soak --minutes N [--seed S] [--report FILE]`: the random mix for long, and denser.

In rounds of ten minutes on one control plane, each with a namespace and processes of its own: a round is
brought to rest and checked before the next one begins. Exit code 1 at the first round in which a guarantee
did not hold; its story is printed and its logs are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

import aiohttp

from astrabox_scheduler_crds.labels import RUN_PLURAL
from tests.faults.history.check import check, told
from tests.faults.history.summary import counted, summary_of
from tests.faults.mix.crew import Crew
from tests.faults.mix.drive import Driver
from tests.faults.mix.performance import Troupe, perform
from tests.faults.mix.plan import Density
from tests.faults.scenes.runs import phase
from tests.faults.soak.figures import Figures, machine
from tests.faults.stage.plane import OwnPlane, ensure_programs, own_plane
from tests.faults.stage.rig import Rig

SOAK: Final = Density(
    deployments=60,
    commands=30,
    singles=36,
    wides=2.6,
    outages=1.1,
    kills=0.75,
    hosts_left=3,
    operators_left=1,
    to_ready=10,
)
TROUPE: Final = Troupe(hosts=8, operators=4)
ROUND_SECONDS: Final = 600.0
_AROUND_SECONDS: Final = 150.0
"""Start, heal, rest and check of a round."""
_SHORTEST_SECONDS: Final = 60.0


class Progress:
    """Says once a minute how far the round is."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._now: tuple[Rig, Driver, Crew] | None = None

    def watch(self, rig: Rig, driver: Driver, crew: Crew) -> None:
        """From now on this round."""
        self._now = rig, driver, crew

    async def tell(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(60)
            if self._now is not None:
                say(await self._line(*self._now))

    async def _line(self, rig: Rig, driver: Driver, crew: Crew) -> str:
        phases: Counter[str] = Counter()
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, RuntimeError, OSError):
            runs = await rig.objects(RUN_PLURAL)
            phases.update(phase(run) for run in runs)
        ends = sum(
            count for what, count in crew.counts.items() if what.split()[0] in ("kill", "terminate", "died")
        )
        seen = counted(phases)
        minutes = (time.time() - self._figures.began) / 60
        return (
            f"{minutes:5.1f} min, round {self._figures.rounds + 1}: {ends} processes ended, "
            f"{sum(driver.done.steps[kind] for kind in ('kill-apiserver', 'kill-etcd'))} store restarts, "
            f"runs {seen or '(none seen)'}; violations before: {self._figures.violations.total()}"
        )


async def soak(plane: OwnPlane, minutes: float, figures: Figures, logs: Path) -> bool:
    """Rounds until the time is over or a guarantee did not hold; whether all held."""
    progress = Progress(figures)
    telling = asyncio.create_task(progress.tell())
    end = figures.began + minutes * 60
    try:
        while (left := end - time.time() - _AROUND_SECONDS) >= _SHORTEST_SECONDS or not figures.rounds:
            seconds = min(ROUND_SECONDS, max(left, _SHORTEST_SECONDS))
            if not await one_round(plane, seconds, figures, logs, progress):
                return False
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
    return True


async def one_round(
    plane: OwnPlane, seconds: float, figures: Figures, logs: Path, progress: Progress
) -> bool:
    """One round and what is to be said of it."""
    seed = figures.seed + figures.rounds
    say(f"round {figures.rounds + 1}: seed {seed}, {seconds:.0f} s")
    shutil.rmtree(logs, ignore_errors=True)
    performance = await perform(plane, seed, seconds, SOAK, TROUPE, logs=logs, watched=progress.watch)
    violations = await asyncio.to_thread(check, performance.history)
    summary = await asyncio.to_thread(summary_of, performance.history)
    figures.add(performance, summary, violations)
    say(f"round {figures.rounds} is over\n{summary}")
    for each in performance.differing:
        say(f"G10 the store is not as AstraBox wants it: {each}")
    if violations:
        say(told(performance.history, violations, summary))
    return not violations and not performance.differing


def say(text: str) -> None:
    """Print at once, for whoever watches."""
    print(text, flush=True)  # noqa: T201 - a command line program


def main() -> int:
    """Run the program; 1 if a guarantee did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--report", type=Path, help="file for the table")
    options = parser.parse_args()
    ensure_programs()
    logs = Path(tempfile.mkdtemp(prefix="astrabox-soak-"))
    figures = Figures(options.seed, time.time())
    say(f"soak of {options.minutes:g} minutes, --seed {options.seed}, on {machine()}")
    held = False
    try:
        with own_plane() as plane:
            held = asyncio.run(soak(plane, options.minutes, figures, logs))
    finally:
        table = figures.table() if figures.rounds else ""
        say(f"\n{table}")
        if options.report is not None and table:
            options.report.write_text(table + "\n")
        if held:
            shutil.rmtree(logs)
        else:
            say(f"NOT everything held: --seed {options.seed}; logs of the last round: {logs}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
