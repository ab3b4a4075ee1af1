"""O-Cloud: placing the tasks of a cloud trace on servers, as the paper's Appendix B.2 describes it."""

import dataclasses
from pathlib import Path
from typing import Any

from sadq.envs.ocloud.environment import OCloud, OCloudState
from sadq.envs.ocloud.placement import POLICIES
from sadq.envs.ocloud.synthetic import synthetic
from sadq.envs.ocloud.trace import batch_task, real_hour
from sadq.envs.ocloud.workload import JOB_SHARE, Workload
from sadq.errors import SadqError

__all__ = ["POLICIES", "OCloud", "OCloudState", "Workload", "batch_task", "make", "real_hour", "synthetic"]


def make(
    source: str | Path = "synthetic",
    window: tuple[int, int] | None = None,
    evaluation_fraction: float = 0.2,
    seed: int = 0,
    job_share: float = JOB_SHARE,
    **settings: Any,
) -> OCloud:
    """O-Cloud over "synthetic" tasks (of `seed`), the real "hour" of the extra `trace`, or a `batch_task.csv`.

    `window` selects seconds of the file, `evaluation_fraction` of its time is kept for evaluation, `job_share` of its
    jobs take part, and `settings` are fields of `OCloud`. At a `job_share` of 1, the trace's whole rate, servers need
    about `cores=48 memory=50`.
    """
    known = {field.name for field in dataclasses.fields(OCloud) if field.init} - {"workload"}
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise SadqError(
            f"OCloud has no setting {', '.join(unknown)}, expected {', '.join(sorted(known))}: choose those."
        )
    if source == "synthetic":
        return OCloud(workload=synthetic(seed, job_share), **settings)
    if source == "hour":
        return OCloud(workload=real_hour(evaluation_fraction, job_share), **settings)
    return OCloud(workload=batch_task(source, window, evaluation_fraction, job_share), **settings)
