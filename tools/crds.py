"""Write `crds/manifests/` from the models, or check that it is current.

python -m tools.crds            write
python -m tools.crds --check    fail on a difference and say what to do
"""

import argparse
import sys
from pathlib import Path

import yaml
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.crd import run_crd, schedule_crd

MANIFESTS = Path(__file__).resolve().parent.parent / "crds" / "manifests"
HEADER = "# Generated from crds/astrabox_scheduler_crds by `make crds`. Do not edit.\n"


def rendered() -> dict[Path, str]:
    """Each generated file and its text."""
    definitions = {labels.SCHEDULE_PLURAL: schedule_crd(), labels.RUN_PLURAL: run_crd()}
    return {
        MANIFESTS / f"{plural}.yaml": HEADER + yaml.safe_dump(definition, sort_keys=False, width=110)
        for plural, definition in definitions.items()
    }


def main() -> int:
    """Write the files, or with --check compare them; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    check = parser.parse_args().check
    stale = {path: text for path, text in rendered().items() if not path.exists() or path.read_text() != text}
    if check:
        for path in stale:
            print(f"{path.name} differs from the models: run `make crds` and commit it", file=sys.stderr)
        return 1 if stale else 0
    MANIFESTS.mkdir(parents=True, exist_ok=True)
    for path, text in stale.items():
        path.write_text(text)
        print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
