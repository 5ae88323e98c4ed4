"""What the README and the pages beside it claim is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
RELIABILITY = (ROOT / "docs" / "reliability.md").read_text()
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
GUARANTEES = [f"G{number}" for number in range(1, 11)]


def defined_in(*folders: str) -> set[str]:
    """Names of the tests below these folders."""
    sources = [path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return set(re.findall(r"def (test_\w+)", "\n".join(sources)))


def shown_in(text: str) -> dict[str, set[str]]:
    """The tests that a table names in the row of each guarantee."""
    rows = re.findall(r"^\| (G\d+) \|(.*)$", text, re.MULTILINE)
    return {guarantee: set(re.findall(r"`(test_\w+)`", rest)) for guarantee, rest in rows}


def sections(text: str) -> set[str]:
    """Anchors of a page, as GitHub makes them of its headings."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_test_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", README + RELIABILITY))
    defined = defined_in("tests", "e2e", "contract")
    assert len(named) > 60
    assert named <= defined, named - defined


def test_every_guarantee_has_a_test_that_breaks_something_on_purpose() -> None:
    shown = shown_in(README)
    faults = defined_in("tests/faults")
    assert list(shown) == GUARANTEES
    for guarantee, tests in shown.items():
        assert 2 <= len(tests) <= 3, guarantee
        assert tests & faults, f"{guarantee}: name one of tests/faults in the README"


def test_the_longer_table_of_the_guarantees_has_what_the_readme_names() -> None:
    longer, shown = shown_in(RELIABILITY), shown_in(README)
    assert list(longer) == GUARANTEES
    for guarantee, tests in shown.items():
        assert tests <= longer[guarantee], guarantee


def test_every_section_that_the_documents_link_exists() -> None:
    for page in PAGES:
        for target, section in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            there = page.parent / target if target else page
            assert section in sections(there.read_text()), f"{page.name} links {target}#{section}"


def test_every_page_that_the_documents_link_exists() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links {target}"


def test_the_number_of_broken_providers_is_right() -> None:
    from tests.conformance.test_mutants import MUTANTS

    (told,) = re.findall(r"reject (\d+) deliberately broken", README)
    assert int(told) == len(MUTANTS)
