"""What the README claims is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()


def test_every_test_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", README))
    sources = [
        path.read_text() for folder in ("tests", "e2e", "contract") for path in (ROOT / folder).rglob("*.py")
    ]
    defined = set(re.findall(r"def (test_\w+)", "\n".join(sources)))
    assert len(named) > 20
    assert named <= defined, named - defined


def test_every_page_that_the_documents_link_exists() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links {target}"


def test_the_number_of_broken_providers_is_right() -> None:
    from tests.conformance.test_mutants import MUTANTS

    (told,) = re.findall(r"reject (\d+) deliberately broken", README)
    assert int(told) == len(MUTANTS)
