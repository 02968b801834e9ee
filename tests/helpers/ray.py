"""A private Ray cluster of two CPUs, on the loopback interface alone."""

from __future__ import annotations

import os

import psutil

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else it listens on all interfaces; read when Ray is imported

STARTS = 3
"""Ray gives its own processes half a minute to start: on a machine that is busy it may take another."""


def start_ray(folder: str, *, include_dashboard: bool = False) -> None:
    """Start it and connect to it.

    Args:
        folder: its own, with a short name: the names of unix sockets are limited.
        include_dashboard: with its server, which answers questions about the cluster's state.
    """
    import ray

    before = set(psutil.Process().children(recursive=True))
    for start in range(1, STARTS + 1):
        try:
            ray.init(
                address="local",
                num_cpus=2,
                include_dashboard=include_dashboard,
                log_to_driver=False,
                logging_level="ERROR",
                _node_ip_address="127.0.0.1",
                _temp_dir=folder,
            )
            return
        except Exception as error:
            if start == STARTS or "timed out during startup" not in str(error):
                raise
            for process in set(psutil.Process().children(recursive=True)) - before:
                process.kill()
