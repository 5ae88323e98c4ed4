"""Scheduler provider for AstraBox that keeps schedules and runs in the Kubernetes API."""

from astrabox_scheduler_kubernetes.provider import KubernetesSchedulerProvider

__all__ = ["KubernetesSchedulerProvider"]
