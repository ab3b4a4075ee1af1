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
from sadq.registry import not_negative, typed

__all__ = ["POLICIES", "OCloud", "OCloudState", "Workload", "batch_task", "make", "real_hour", "synthetic"]


@typed
@dataclasses.dataclass(frozen=True)
class Tasks:
    """Which tasks there are: "synthetic" ones, the real "hour", or those of a file."""

    source: str | Path = "synthetic"
    window: tuple[int, int] | None = None
    evaluation_fraction: float = 0.2
    seed: int = 0
    job_share: float = JOB_SHARE

    def __post_init__(self) -> None:
        not_negative(self, "seed")

    def workload(self) -> Workload:
        if self.source == "synthetic":
            return synthetic(self.seed, self.job_share)
        if self.source == "hour":
            return real_hour(self.evaluation_fraction, self.job_share)
        return batch_task(self.source, self.window, self.evaluation_fraction, self.job_share)


def make(source: str | Path = "synthetic", **settings: Any) -> OCloud:
    """O-Cloud over "synthetic" tasks (of `seed`), the real "hour" of the extra `trace`, or a `batch_task.csv`.

    `settings` are fields of `OCloud` and of `Tasks`: `window` selects seconds of the file, `evaluation_fraction` of its
    time is kept for evaluation, and `job_share` of its jobs take part. At a `job_share` of 1, the trace's whole rate,
    servers need about `cores=48 memory=50`.
    """
    of_tasks = {field.name for field in dataclasses.fields(Tasks)}
    known = {field.name for field in dataclasses.fields(OCloud) if field.init} - {"workload"}
    if unknown := sorted(settings.keys() - known - of_tasks):
        expected = ", ".join(sorted(known | of_tasks))
        raise SadqError(f"OCloud has no setting {', '.join(unknown)}, expected {expected}: choose those.")
    tasks = Tasks(source, **{name: settings.pop(name) for name in of_tasks & settings.keys()})
    return OCloud(workload=tasks.workload(), **settings)
