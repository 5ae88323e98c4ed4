"""Write every generated file of the tree, or check that each is current.

python -m tools.generated            write
python -m tools.generated --check    fail on a difference and say what to do
"""

import argparse
import sys

from tools.generated import (
    alerts_table,
    chart,
    chart_readme,
    dashboard,
    due_times,
    faults_table,
    locks,
    manifests,
    mutations_table,
    settings_page,
)
from tools.generated.paths import ROOT


def main() -> int:
    """Write the files, or with --check compare them; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    check = parser.parse_args().check
    pages = (
        manifests,
        chart,
        chart_readme,
        dashboard,
        locks,
        due_times,
        faults_table,
        settings_page,
        mutations_table,
        alerts_table,
    )
    texts = {path: text for page in pages for path, text in page.rendered().items()}
    stale = {path: text for path, text in texts.items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        name = path.relative_to(ROOT)
        if check:
            print(f"{name} is not current: run `make crds` and commit the result", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
