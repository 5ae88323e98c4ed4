"""What an operator says of itself over HTTP."""

from __future__ import annotations

from typing import Literal

import aiohttp

from tests.faults.stage.rig import Rig


async def health(rig: Rig, operator: str, page: Literal["healthz", "readyz", "metrics"]) -> tuple[int, str]:
    """Status code and text of the page."""
    url = f"http://127.0.0.1:{rig.actors._health[operator]}/{page}"
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()
    except aiohttp.ClientConnectionError:
        return 0, "nobody listens"
