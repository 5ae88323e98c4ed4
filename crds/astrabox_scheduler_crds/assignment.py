"""Rendezvous hashing: who of the live ones takes what, agreed on without a word."""

import hashlib
from collections.abc import Iterable


def owner(item: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `item` belongs to, None without candidates.

    Every process that sees the same candidates chooses the same one; when one of them goes, only
    its items move (highest random weight, Thaler and Ravishankar 1998).
    """
    return max(candidates, key=lambda name: (_weight(name, item), name), default=None)


def _weight(name: str, item: str) -> bytes:
    return hashlib.blake2b(f"{name}\0{item}".encode(), digest_size=8).digest()
