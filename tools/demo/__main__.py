"""The whole main job, live, in two to three minutes.

Exit code 0 if all that was promised was seen, 1 if not, 130 on Ctrl-C.
"""

import argparse
import asyncio
import sys

from tools.controlplane import ControlPlaneError, ensure_binaries
from tools.demo.screen import Screen
from tools.demo.stage import HOSTS, OPERATORS, Stage, set_up
from tools.demo.story import Story


async def perform(stage: Stage, screen: Screen) -> None:
    """Wait for the processes and play the story."""
    await stage.ready()
    screen.say(f"ready: {', '.join((*OPERATORS, *HOSTS))}")
    async with await stage.connect(HOSTS[0]) as one, await stage.connect(HOSTS[1]) as two:
        await Story(stage, screen, one, two).tell()


def main() -> int:
    """Run the demo; returns the exit code."""
    argparse.ArgumentParser(prog="python -m tools.demo", description=__doc__).parse_args()
    try:
        ensure_binaries()
        screen = Screen()
        screen.act("Setting up: etcd and kube-apiserver on 127.0.0.1, two operators, two AstraBox hosts")
        with set_up() as stage:
            asyncio.run(perform(stage, screen))
            with screen.waiting("stopping hosts and operators"):
                stage.stop()
        return 0 if screen.summary() else 1
    except (ControlPlaneError, RuntimeError, TimeoutError) as error:
        print(f"\nThe demo did not get to its end: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; everything was taken down", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
