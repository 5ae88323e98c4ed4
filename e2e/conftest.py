"""A cluster with both images for the session; a release with two hosts in a namespace for each module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.budget import chosen_budget
from e2e.images import Images
from e2e.places import Place, chosen_place, helm_version
from e2e.release import Release, deploy_hosts, deploy_repository, diagnosis, install, new_namespace, remove
from tools.controlplane import Cluster, ControlPlaneError
from tools.helm import Helm, helm_binary, helm_of

HELM_SECONDS = 360.0
"""Longer than helm's own limit for --wait, after which it says what was not ready."""
_PLACE = pytest.StashKey[Place]()
_SCENE = pytest.StashKey[tuple[Cluster, str]]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build programs and images before the first test starts its clock; the first time it takes minutes."""
    wanted = any("cluster" in getattr(item, "fixturenames", ()) for item in session.items)
    if session.config.option.collectonly or not wanted:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            place = session.config.stash[_PLACE] = chosen_place()
            place.prepare()
            helm_binary(helm_version())
    except ControlPlaneError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_configure(config: pytest.Config) -> None:
    """Count the time of tests, where their reports come together."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Clock(), "budget of the suite")


class _Clock:
    """Fails a session whose tests have taken too long."""

    @pytest.hookimpl
    def pytest_sessionstart(self) -> None:
        """Read what is allowed, before anything is built."""
        try:
            self.budget = chosen_budget(os.environ)
        except ControlPlaneError as error:
            raise pytest.UsageError(str(error)) from error

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count it."""
        self.budget.add(report)

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Too slow is as bad as wrong."""
        if self.budget.longest > self.budget.seconds:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say it in any case."""
        terminalreporter.write_sep("=", "time of the tests")
        terminalreporter.write_line(self.budget.told())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Add what pods, objects and logs say to the report of a failure, before they are removed."""
    report = yield
    scene = item.config.stash.get(_SCENE, None)
    if report.failed and report.when != "teardown" and scene is not None:
        report.sections.append(("cluster", diagnosis(*scene)))
    return report


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The one that was chosen, for the session."""
    with request.config.stash[_PLACE].open() as made:
        yield made


@pytest.fixture(scope="session")
def images(request: pytest.FixtureRequest, cluster: Cluster) -> Images:
    """Both images, on the cluster's nodes."""
    return request.config.stash[_PLACE].images(cluster)


@pytest.fixture(scope="session")
def helm(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """`helm(*arguments, input=None)` on the cluster; version 4, or what `make e2e HELM=3` says."""
    return helm_of(helm_version(), tmp_path_factory.mktemp("helm")).of(
        cluster.kubeconfig, timeout=HELM_SECONDS
    )


@pytest.fixture(scope="module")
def namespace(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """A fresh namespace; it is removed at the end, and with it the chart's definitions."""
    name = new_namespace(cluster)
    request.config.stash[_SCENE] = (cluster, name)
    yield name
    del request.config.stash[_SCENE]
    remove(cluster, name)


@pytest.fixture(scope="module")
def release(cluster: Cluster, images: Images, helm: Helm, namespace: str) -> Iterator[Release]:
    """The chart as a user installs it, with the two hosts running and Ready."""
    deploy_repository(cluster, namespace, images)
    made = install(cluster, helm, images, namespace)
    deploy_hosts(made, images)
    yield made
    helm("uninstall", made.name, "-n", made.namespace)
