"""A synthetic workload, fitted to the summary statistics of one hour of Alibaba's cluster trace; no row of it is real."""

import functools
import math

import numpy as np

from sadq.envs.ocloud.workload import Workload, checked_share, checksum, stream

TRAINING_TASKS = 262_144
EVALUATION_TASKS = 65_536

JOBS_PER_SECOND = 4.65
TASKS_PER_SECOND = 18.8
SIMULTANEOUS = 0.8
"""Share of jobs that arrive in the same second as the job before."""

NO_DURATION = 0.037
"""Share of tasks that end in the second in which they start."""

DURATION = ((NO_DURATION, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0), (1, 3, 10, 37, 148, 320, 741, 2400))
"""Probabilities and seconds, between which the logarithm is interpolated; the last gives the mean, 63.8 s."""

CORES = ((0.05, 0.1, 0.3, 0.5, 1.0, 2.0), (0.009, 0.009, 0.009, 0.45, 0.52, 0.003))
"""Values and their probabilities."""

MEMORY = ((0.0, 0.03, 0.25, 0.5, 0.75, 0.95, 0.999, 1.0), (0.03, 0.15, 0.2, 0.3, 0.39, 0.59, 1.2, 5.0))
"""Probabilities and memory units; interpolated between them."""

TASKS_PER_JOB = TASKS_PER_SECOND / JOBS_PER_SECOND

COUPLING = 0.63
"""Share of tasks whose cores and memory stand at the same quantile; with it their rank correlation is 0.55."""


@functools.cache
def synthetic(seed: int = 0, job_share: float = 1.0) -> Workload:
    """The synthetic workload of a seed, of which a share of the jobs is kept.

    Training and evaluation are streams of their own, with nothing in common.
    """
    training, evaluation = (
        generate(np.random.default_rng([seed, index]), count, job_share)
        for index, count in enumerate((TRAINING_TASKS, EVALUATION_TASKS))
    )
    provenance = {
        "source": "synthetic",
        "synthetic": True,
        "seed": seed,
        "job_share": job_share,
        "window": {"train": [0, len(training)], "evaluation": [0, len(evaluation)]},
        "sha256": checksum(training, evaluation),
    }
    return Workload(training, evaluation, provenance)


def generate(random: np.random.Generator, count: int, job_share: float = 1.0) -> np.ndarray:
    """A stream of `count` tasks: jobs arrive in bursts, the tasks of a job together; each job is kept by chance."""
    pause = 1 / (JOBS_PER_SECOND * (1 - SIMULTANEOUS))  # mean of the gaps that are not zero
    # A job has a task at least, so `count` jobs are enough; of a share of them, as many as have half as many tasks again.
    jobs = max(count, math.ceil(1.5 * count / (TASKS_PER_JOB * checked_share(job_share))))
    gaps = np.where(random.random(jobs) < SIMULTANEOUS, 0, random.geometric(1 / pause, jobs))
    sizes = random.geometric(1 / TASKS_PER_JOB, jobs)
    begun = np.cumsum(gaps)
    if job_share < 1:
        kept = random.random(jobs) < job_share
        begun, sizes = begun[kept], sizes[kept]
    arrival = np.repeat(begun, sizes)[:count]
    count = len(arrival)

    share = random.random(count)
    values, probabilities = CORES
    cores = np.asarray(values)[np.searchsorted(np.cumsum(probabilities)[:-1], share)]
    coupled = np.where(random.random(count) < COUPLING, share, random.random(count))
    memory = np.interp(coupled, *MEMORY)

    rank = random.random(count)
    probability, seconds = DURATION
    duration = np.where(rank < NO_DURATION, 0, np.round(np.exp(np.interp(rank, probability, np.log(seconds)))))
    return stream(arrival, cores, memory, duration)
