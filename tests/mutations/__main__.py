"""`python -m tests.mutations [--list] [--quick] [NAME...]`: take each mechanism out and see its tests fail.

Each mutation is made in a copy of the working tree. Exit code 1 if one was not caught, or if its copy or
a test of it was broken for another reason than the mechanism that is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.mutations.catalogue import ALL
from tests.mutations.mutation import Mutation
from tests.mutations.trial import Finding, Verdict, tried
from tools.generated.paths import ROOT


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutations that are asked for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these; all if none is named")
    parser.add_argument("--list", action="store_true", help="tell which there are, and try none")
    parser.add_argument("--quick", action="store_true", help="leave out the tests in tests/faults")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - {each.name for each in ALL}):
        parser.error(f"there is no mutation {', '.join(unknown)}: --list tells which there are")
    chosen = [each for each in ALL if not options.names or each.name in options.names]
    if options.quick:
        chosen = [quick for each in chosen if (quick := each.quick()).tests]
    if options.list:
        for each in chosen:
            sys.stdout.write("\n    ".join((f"{each.name}: {each.taken_out}", *each.tests)) + "\n")
        return 0
    return _try(chosen)


def _try(chosen: Sequence[Mutation]) -> int:
    verdicts: list[Verdict] = []
    for number, mutation in enumerate(chosen, 1):
        _say(f"[{number}/{len(chosen)}] {mutation.name}: {mutation.taken_out}")
        verdicts.append(tried(mutation, ROOT))
        told = verdicts[-1].told.replace("\n", "\n    ")
        _say(f"    {verdicts[-1].seconds:.0f} s: {told}")
    for finding in Finding:
        names = [each.mutation.name for each in verdicts if each.finding is finding]
        if names:
            _say(f"{len(names)} {finding}" + ("" if finding is Finding.CAUGHT else f": {', '.join(names)}"))
    return int(any(each.finding is not Finding.CAUGHT for each in verdicts))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
