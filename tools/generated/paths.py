"""Where generated files and their sources are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
