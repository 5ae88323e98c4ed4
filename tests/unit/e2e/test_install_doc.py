"""The reader of docs/install.md, and that the suite knows every block of the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from astrabox_scheduler_crds.firing import SkipReason
from astrabox_scheduler_crds.run import Phase
from astrabox_scheduler_crds.transitions import Cancellation
from e2e.install_doc import Block, PageError, names_set, page_blocks, read_blocks
from e2e.install_restore import tells_of_gap
from e2e.install_stage import DEPLOYMENT, NAME, InstallStage, own_values
from e2e.install_steps import STEPS, check_sample
from tools.generated.locks import entries
from tools.generated.paths import ROOT
from tools.helm import Helm
from tools.node import Node

_LOGGING = "from astrabox_scheduler_operator.logs import configure_logs"
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
        (
            "text\n`kubectl get pods`\n",
            r'line 2: `kubectl get pods` asks another namespace, write -n "\$N',
        ),
        ("`kubectl -n a get b`, `helm test a`", r"line 1: `helm test a` asks another namespace"),
        (block("a=1\nexport A=1"), r"line 3: one exports a name: do that in a block set-"),
        (block("export A=1\nrm x", "set-a"), r"line 4: set-a may hold nothing but `export NAME=value`: rm x"),
        (block("export A=$(date)", "set-a") + block("export A=x y", "set-b"), r"set-b may hold nothing but"),
    ],
)
def test_what_could_not_be_run_is_refused(text: str, told: str) -> None:
    with pytest.raises(PageError, match=told):
        read_blocks(text)


def test_the_text_may_name_commands_that_have_their_namespace() -> None:
    text = '`kubectl -n "$NAMESPACE" get dsched`, `helm ls --namespace=a`, `kubectl` and `helm`, kubectl get'
    assert read_blocks(text) == []


def test_every_block_of_the_page_has_its_step_and_every_step_its_block() -> None:
    assert [each.name for each in page_blocks()] == list(STEPS)


def test_every_name_that_the_page_sets_is_used_and_has_a_value_here() -> None:
    blocks = page_blocks()
    stage = InstallStage(Node(), Helm("4", ROOT, ROOT), "space", ROOT, facts={"run": "a-run"})
    values = own_values(stage)
    commands = "\n".join(each.text for each in blocks if not each.sets_names)
    for each in blocks:
        for name in names_set(each) if each.sets_names else ():
            assert f"${name}" in commands or f"${{{name}}}" in commands, name
            assert values[name]


def test_what_helm_writes_to_standard_error_is_part_of_what_its_test_says(tmp_path: Path) -> None:
    node = Node()
    node.kubeconfig = tmp_path / "none"  # a shell is all that runs
    stage = InstallStage(node, Helm("4", ROOT, ROOT), "space", tmp_path)
    stage.clone.mkdir()
    commands = Block("one", "echo log >&2\necho status", 1)
    assert stage.shell(commands, 10.0) == "status\n"
    assert stage.shell(commands, 10.0, both_streams=True) == "log\nstatus\n"
    assert [name for name, step in STEPS.items() if step.both_streams] == ["helm-test"]


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


SAMPLE = """NAME      LAST DUE               READY   AGE
nightly   2026-11-03T01:30:00Z   True    41d
NAME          PHASE       AGE
nightly-run   Succeeded   7h
"""


def printed(schedule: str, run: str = "nightly-1     Failed      1h") -> str:
    headings = SAMPLE.splitlines()[::2]
    return f"{headings[0]}\n{schedule}\n\n{headings[1]}\n{run}\n"


def test_samples_are_compared_by_headings_and_by_the_cells_that_are_filled() -> None:
    check_sample(SAMPLE, printed("other     2026-01-03T01:30:00Z   False   2s"))
    fresh = "fresh                            False   2s"
    check_sample(SAMPLE, printed(f"{fresh}\nother     2026-01-03T01:30:00Z   False   2s"))
    with pytest.raises(AssertionError, match="in no row are cells filled as the page shows nightly:"):
        check_sample(SAMPLE, printed(fresh))
    with pytest.raises(AssertionError, match="in no row are cells filled as the page shows nightly-run:"):
        check_sample(
            SAMPLE, printed("other     2026-01-03T01:30:00Z   False   2s", "nightly-1                 1h")
        )
    with pytest.raises(AssertionError, match=r"the page shows \['NAME', 'LAST', 'DUE', 'READY', 'AGE'\]"):
        check_sample(SAMPLE, "NAME   CRON   READY   AGE\nnightly   * * * * *   True   2s\n")


def test_what_is_no_table_is_compared_as_it_is() -> None:
    check_sample("2026-11-03T01:30Z", "2026-11-03T01:30Z\n")
    with pytest.raises(AssertionError):
        check_sample("2026-11-03T01:30Z", "2026-11-03T02:30Z\n")


def test_packages_that_astrabox_keeps_are_not_in_its_lock(tmp_path: Path) -> None:
    """The command of the page, on the lock file of this tree."""
    (command,) = (line for line in commands_of("build-wheel") if line.startswith("sed "))
    (tmp_path / "dist").mkdir()
    (tmp_path / "requirements").symlink_to(ROOT / "requirements")
    whole = entries((ROOT / "requirements" / "astrabox.lock").read_text())
    for pins, kept in (("none", set()), ("aiohttp|yarl", {"aiohttp", "yarl"}), ("attrs", {"attrs"})):
        environ = os.environ | {"ASTRABOX_PINS": pins}
        subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environ, check=True)
        left = (tmp_path / "dist" / "astrabox.lock").read_text()
        assert entries(left) == {name: text for name, text in whole.items() if name not in kept}


@pytest.mark.parametrize("style", ["json", "text"])
def test_what_was_skipped_is_found_in_logs_of_either_format(style: str) -> None:
    (command,) = (line for line in commands_of("ask-skipped") if " logs " in line)
    program = f"import logging\n{_LOGGING}\nconfigure_logs('INFO', {style!r})\n"
    program += "logging.info('started'); logging.info('skipped', extra={'schedule': 'nightly'})"
    log = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr
    assert len(log.splitlines()) == 2
    searched = command.partition(" | ")[2]
    found = subprocess.run(["bash", "-c", searched], input=log, capture_output=True, text=True, check=True)
    assert found.stdout == log.splitlines(keepends=True)[1]


def test_a_gap_is_found_in_what_the_page_makes_kubectl_print() -> None:
    event = f"2m   Warning   DueTimesSkipped   deploymentschedule/{DEPLOYMENT}   11 due times were skipped"
    told = json.dumps({"message": "skipped", "schedule": DEPLOYMENT, "reason": SkipReason.MISSED.value})
    line = f"[pod/{NAME}-operator-5d4-x2x/operator] {told}"
    assert tells_of_gap(f"{event}\n{line}\n")
    assert not tells_of_gap(f"{event}\n")
    assert not tells_of_gap(f"{line}\n")
    assert not tells_of_gap(f"{event}\n{line.replace(DEPLOYMENT, 'another')}\n")


def commands_of(name: str) -> list[str]:
    (block,) = (each for each in page_blocks() if each.name == name)
    return block.text.splitlines()


def test_images_are_built_by_commands_that_docker_takes_as_well() -> None:
    """Docker looks for a Dockerfile, unless it is told another name."""
    for path in ("README.md", "docs/install.md", "Containerfile", "e2e/Containerfile.astrabox"):
        text = (ROOT / path).read_text().replace("\\\n", "")
        builds = re.findall(r"buildah build (.*)", text)
        assert builds, path
        for flags in builds:
            assert "--file " in flags, f"{path}: {flags}"
            assert set(re.findall(r"--?[a-z-]+", flags.partition("#")[0])) >= {"--file", "--tag"}
            assert not set(re.findall(r" (-{1,2}[a-z][a-z-]*)", flags)) - {"--file", "--tag", "--build-arg"}


def test_the_release_has_the_name_that_the_page_gives_it() -> None:
    assert f"helm install {NAME} helm/{NAME} " in PAGE_TEXT
