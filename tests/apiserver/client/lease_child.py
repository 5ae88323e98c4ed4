"""A process with a Lease: answers each line on stdin with what it believes about it."""

import asyncio
import sys

from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_client.lease_keeper import LeaseKeeper


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main(kubeconfig: str, namespace: str, identity: str) -> None:
    keeper = LeaseKeeper(
        ConnectSettings(kubeconfig), namespace, "provider", identity, duration=2.0, period=0.5
    )
    await keeper.start(20)
    say("started")
    for _ in sys.stdin:  # blocks the event loop: the Lease must not need it
        say(f"{keeper.held()} {keeper.lapses} {keeper.name}")
    await keeper.release()


asyncio.run(main(*sys.argv[1:]))
