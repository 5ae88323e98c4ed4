"""The tree must not get in the way of Python itself."""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_operator_is_still_the_standard_librarys() -> None:
    """The folder operator/ stands first on the path of everything that is started in the root."""
    found = Path(run("sys.modules.pop('operator', None); import operator; print(operator.__file__)"))
    assert found == Path(sysconfig.get_path("stdlib")) / "operator.py"


def test_the_folder_operator_holds_nothing_that_python_would_import() -> None:
    assert [each.name for each in (ROOT / "operator").iterdir() if each.suffix == ".py"] == []


def test_loading_the_provider_brings_no_client_library_into_astrabox() -> None:
    """It is loaded in the process of AstraBox, also where another provider is chosen in the end."""
    heavy = "[name for name in ('kubernetes_asyncio', 'kopf', 'prometheus_client') if name in sys.modules]"
    assert run(f"import astrabox_scheduler_kubernetes; print({heavy})") == "[]"
