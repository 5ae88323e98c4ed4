"""Stretches of time as pairs of seconds, begin and end; a point belongs to a stretch whose end it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.faults.history.facts import Span


def union(spans: Iterable[Span]) -> list[Span]:
    """The same time as sorted stretches that do not touch."""
    merged: list[Span] = []
    for begin, end in sorted(span for span in spans if span[1] >= span[0]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def subtract(spans: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    """The time of `spans` that lies in no hole."""
    left = union(spans)
    for hole in union(holes):
        rest: list[Span] = []
        for begin, end in left:
            if hole[1] <= begin or hole[0] >= end:
                rest.append((begin, end))
                continue
            rest += [part for part in ((begin, hole[0]), (hole[1], end)) if part[1] > part[0]]
        left = rest
    return left


def split(spans: Iterable[Span], points: Iterable[float]) -> list[Span]:
    """The same stretches, none with one of the points inside."""
    pieces = list(spans)
    for point in points:
        cut: list[Span] = []
        for begin, end in pieces:
            cut += [(begin, point), (point, end)] if begin < point < end else [(begin, end)]
        pieces = cut
    return sorted(pieces)


def clip(spans: Iterable[Span], begin: float, end: float) -> list[Span]:
    """What lies between `begin` and `end`."""
    cut = ((max(span[0], begin), min(span[1], end)) for span in spans)
    return [span for span in cut if span[1] > span[0]]


def longest(spans: Iterable[Span]) -> float:
    """Length of the longest stretch."""
    return max((end - begin for begin, end in spans), default=0.0)


def meets(spans: Iterable[Span], begin: float, end: float) -> bool:
    """Whether any of them has a moment in common with [begin, end]."""
    return any(span[0] <= end and span[1] >= begin for span in spans)


def covers(spans: Sequence[Span], begin: float, end: float) -> bool:
    """Whether one of them holds all of [begin, end]."""
    return any(span[0] <= begin and span[1] >= end for span in spans)


def quantile(ordered: Sequence[float], share: float) -> float:
    """What this share of sorted figures does not exceed; 0.0 without any."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
