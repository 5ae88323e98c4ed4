"""The reader of docs/install.md, and that the suite knows every block of the page."""

from __future__ import annotations

import re

import pytest

from astrabox_scheduler_crds.firing import SkipReason
from astrabox_scheduler_crds.run import Phase
from astrabox_scheduler_crds.transitions import Cancellation
from e2e.install_doc import Block, PageError, names_set, page_blocks, read_blocks
from e2e.install_stage import NAME, own_values
from e2e.install_steps import STEPS, check_sample
from tools.generated.paths import ROOT

PAGE_TEXT = (ROOT / "docs" / "install.md").read_text()
PAGE = """# A page

<!-- block: set-names -->
```bash
export NAMESPACE=astrabox       # where it runs
export DEPLOYMENT=nightly
```

Text with a `<!-- block: no-fence -->` in it.

<!-- block: see -->
```bash
kubectl -n "$NAMESPACE" get dsched
echo '```'
```

<!-- sample: see -->
```text
NAME   READY
```
"""


def block(text: str, name: str = "one") -> str:
    return f"<!-- block: {name} -->\n```bash\n{text}\n```\n"


def test_blocks_come_in_their_order_with_what_they_print() -> None:
    names, see = read_blocks(PAGE)
    assert names_set(names) == {"NAMESPACE": "astrabox", "DEPLOYMENT": "nightly"}
    assert see == Block("see", "kubectl -n \"$NAMESPACE\" get dsched\necho '```'", 13, "NAME   READY")
    assert PAGE.splitlines()[see.line - 1] == see.text.splitlines()[0]
    assert (names.sets_names, see.sets_names) == (True, False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```bash\nrm -rf /\n```\n", r"line 1: this fence is not known, write `<!-- block: NAME -->`"),
        ("text\n\n```\nplain\n```\n", r"line 3: this fence is not known"),
        ("<!-- block: a -->\n\n```bash\nx\n```\n", r"line 3: this fence is not known"),
        ("<!-- block: a -->\n```text\nx\n```\n", r"line 2: a block is written as bash"),
        ("<!-- sample: a -->\n```text\nx\n```\n", r"line 3: a sample follows the one block .*: a"),
        (block("x") + "<!-- sample: one -->\n```bash\nx\n```\n", r"line 6: a sample is written as text"),
        (block("x") + block("y"), r"line 7: there is a block one already"),
        ("<!-- block: a -->\n```bash\nx\n", r"line 2: this fence does not end"),
        (block("a=1\nexport A=1"), r"line 3: one exports a name: do that in a block set-"),
        (block("export A=1\nrm x", "set-a"), r"line 4: set-a may hold nothing but `export NAME=value`: rm x"),
        (block("export A=$(date)", "set-a") + block("export A=x y", "set-b"), r"set-b may hold nothing but"),
    ],
)
def test_what_could_not_be_run_is_refused(text: str, told: str) -> None:
    with pytest.raises(PageError, match=told):
        read_blocks(text)


def test_every_block_of_the_page_has_its_step_and_every_step_its_block() -> None:
    assert [each.name for each in page_blocks()] == list(STEPS)


def test_every_name_that_the_page_sets_is_used_and_has_a_value_here() -> None:
    blocks = page_blocks()
    values = own_values("space", "a-run")
    commands = "\n".join(each.text for each in blocks if not each.sets_names)
    for each in blocks:
        for name in names_set(each) if each.sets_names else ():
            assert f"${name}" in commands or f"${{{name}}}" in commands, name
            assert values[name]


def test_every_reason_that_kubectl_may_show_is_explained() -> None:
    page = PAGE_TEXT.partition("## Why did it not run")[2].partition("\n## ")[0]
    told = set(re.findall(r"`([A-Za-z]+)`", page))
    sources = [path.read_text() for path in (ROOT / "operator").rglob("*.py")]
    sources.append((ROOT / "crds" / "astrabox_scheduler_crds" / "transitions.py").read_text())
    code = "\n".join(sources)
    reasons = set(re.findall(r'Problem\(\s*"([A-Za-z]+)"', code))
    reasons |= set(re.findall(r'"(Create[A-Za-z]+|QuotaExceeded)"', code))
    reasons |= set(re.findall(r'Phase\.[A-Z]+, "([A-Za-z]+)"', code))
    reasons |= {each.value for each in SkipReason} | {each.reason for each in Cancellation}
    reasons |= {each.value for each in Phase}
    assert len(reasons) > 25
    assert reasons <= told, reasons - told


def test_samples_are_compared_by_their_headings() -> None:
    sample = "NAME   READY   AGE\nnightly   True   41d\n"
    check_sample(sample, "NAME     READY   AGE\nother   False   2s\n")
    with pytest.raises(AssertionError, match="the page shows NAME"):
        check_sample(sample, "NAME   CRON   READY   AGE\nnightly   * * * * *   True   2s\n")
    check_sample("2026-11-03T01:30Z", "2026-11-03T01:30Z\n")
    with pytest.raises(AssertionError):
        check_sample("2026-11-03T01:30Z", "2026-11-03T02:30Z\n")


def test_the_release_has_the_name_that_the_page_gives_it() -> None:
    assert f"helm install {NAME} helm/{NAME} " in PAGE_TEXT
