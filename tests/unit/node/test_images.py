from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.controlplane.progress import Progress
from tools.node import images as module
from tools.node.errors import ImageError
from tools.node.images import (
    archive_name,
    base_key,
    build_image,
    drop_with_archives,
    image_archive,
    package_sources,
)


def test_a_base_image_is_kept_by_packages_and_release_in_any_order() -> None:
    key = base_key(["a", "b"], "bookworm")
    assert key == base_key(["b", "a"], "bookworm")
    assert len({key, base_key(["a"], "bookworm"), base_key(["a", "b"], "trixie")}) == 3


def test_a_tag_gives_one_file_name() -> None:
    assert archive_name("localhost/a/b:0.1.0") == "localhost_a_b_0.1.0.tar"


def test_a_containerfile_without_the_argument_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "Containerfile"
    path.write_text("FROM python\n# ARG BASE\nARG BASED\n")
    with pytest.raises(ImageError, match="no line `ARG BASE`"):
        build_image(path, "t", "b", tmp_path)


@pytest.mark.parametrize("name", ["sources.list.d/debian.sources", "sources.list"])
def test_package_sources_are_those_of_the_distribution(tmp_path: Path, name: str) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "stranger.sources").write_text("Types: deb\n")
    (tmp_path / "sources.list").touch()  # newer releases leave it empty
    (tmp_path / name).write_text("deb\n")
    assert package_sources(tmp_path) == tmp_path / name


def test_without_package_sources_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="on Debian or Ubuntu"):
        package_sources(tmp_path)


class Storage:
    """In place of buildah's folder: which images are in it, and which of them are in use."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, folder: Path, images: set[str], used: set[str]
    ) -> None:
        self.images, self.used = images, used
        monkeypatch.setattr(module, "_folder", lambda: folder)
        monkeypatch.setattr(module, "_exists", lambda tag: tag in self.images)
        monkeypatch.setattr(module, "_run", self.run)

    def run(self, command: Sequence[str], _: Progress) -> None:
        what = command[-1]
        if what in self.used or what == "--prune":
            raise ImageError(f"{what} is in use")
        self.images.remove(what)


def test_every_image_is_dropped_whatever_became_of_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One was built and not pushed, one was never built, and one is in use: its archive goes all the same."""
    storage = Storage(monkeypatch, tmp_path, {"t:used", "t:unpushed", "t:last", "other"}, {"t:used"})
    for tag in ("t:used", "t:last"):
        image_archive(tag).touch()
    with pytest.raises(ImageError, match=r"^t:used is in use$"):
        drop_with_archives(("t:used", "t:unpushed", "t:never", "t:last"))
    assert storage.images == {"t:used", "other"}
    assert list(tmp_path.iterdir()) == []
    drop_with_archives(("t:never",))
