"""Tasks: the generator against the statistics it is fitted to, trace files good and bad, and the real hour."""

import gzip
import importlib.metadata
import zlib

import numpy as np
import pytest

from sadq.envs.ocloud import batch_task, make, real_hour, synthetic, trace
from sadq.envs.ocloud.workload import rank_correlation, statistics
from sadq.errors import SadqError

DURATION = {"25": 3, "50": 10, "75": 37, "90": 148, "95": 320, "99": 741}
MEMORY = {25: 0.2, 50: 0.3, 75: 0.39, 95: 0.59}
ROW = "M1,12846.0,j_1,1,Terminated,{start},{end},{cpu},{memory}\n"


def hour_installed():
    try:
        importlib.metadata.version(trace.HOUR_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def row(start, end, cpu=100, memory=0.3):
    return ROW.format(start=start, end=end, cpu=cpu, memory=memory)


def written(tmp_path, text, name="batch_task.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("split", ["train", "evaluation"])
def test_the_generator_has_the_statistics_of_the_hour(split):
    tasks = synthetic().stream(split)
    gap, cpu, memory, duration = tasks.T
    found = statistics(tasks)
    for percent, expected in DURATION.items():
        assert found["duration_quantiles"][percent] == pytest.approx(expected, rel=0.1), percent
    for percent, expected in MEMORY.items():
        assert np.percentile(memory / 100, percent) == pytest.approx(expected, rel=0.1), percent
    assert duration.mean() == pytest.approx(63.8, rel=0.1)
    assert (duration == 0).mean() == pytest.approx(0.037, rel=0.1)
    assert (cpu == 100).mean() == pytest.approx(0.52, rel=0.1) and (cpu == 50).mean() == pytest.approx(0.45, rel=0.1)
    assert found["rank_correlation_cores_memory"] == pytest.approx(0.55, abs=0.03)
    assert found["tasks_per_second"] == pytest.approx(18.8, rel=0.1)


def test_jobs_of_the_generator_arrive_in_bursts():
    # Jobs are not marked in a stream: take the gaps between the tasks, of which one in 4.04 begins a job. Within a job
    # they are zero, so moments of the gaps between jobs follow.
    gap = synthetic().training[1:, 0].astype(float)
    per_job = 18.8 / 4.65
    mean, square = gap.mean() * per_job, (gap**2).mean() * per_job
    assert 1 / mean == pytest.approx(4.65, rel=0.05)
    assert np.sqrt(square - mean**2) / mean == pytest.approx(2.0, rel=0.1)
    assert 1 - (gap > 0).mean() * per_job == pytest.approx(0.8, abs=0.02)


def test_of_the_generator_s_jobs_a_share_is_kept_whole():
    """Fewer jobs, but such as they were: as many tasks each, all at once, and of the same kind."""
    everything, kept = synthetic(), synthetic(0, 1 / 40)
    assert kept.provenance["job_share"] == 1 / 40 and len(kept.training) == len(everything.training)
    rates = [statistics(workload.training)["tasks_per_second"] for workload in (everything, kept)]
    assert rates[1] == pytest.approx(rates[0] / 40, rel=0.03)
    gap = kept.training[1:, 0]
    # Only one job in ten meets another in its second now, so tasks without a gap are mostly those of one job.
    assert 1 < 4.65 / 18.8 / (gap > 0).mean() < 1.15
    for column in (1, 2, 3):
        assert kept.training[:, column].mean() == pytest.approx(everything.training[:, column].mean(), rel=0.02)


def test_the_synthetic_workload_is_a_function_of_its_seed():
    assert synthetic() is synthetic() and synthetic().provenance["synthetic"] is True
    again = synthetic.__wrapped__(0)
    np.testing.assert_array_equal(again.training, synthetic().training)
    assert not np.array_equal(synthetic(1).training, synthetic().training)


def test_rank_correlation_is_spearman_s():
    from scipy.stats import spearmanr

    random = np.random.default_rng(0)
    left = random.integers(0, 5, 200)
    right = left + random.integers(0, 6, 200)
    assert rank_correlation(left, right) == pytest.approx(spearmanr(left, right).statistic)


def test_a_trace_is_read_sorted_and_split_by_time(tmp_path):
    text = row(40, 50, 50, 0.39) + row(10, 13) + row(10, 10, 700, 5.17) + row(90, 91) + row(110, 120)
    for name, write in (
        ("a.csv", lambda path: path.write_text(text)),
        ("a.csv.gz", lambda path: _compressed(path, text)),
    ):
        path = tmp_path / name
        write(path)
        workload = batch_task(path, evaluation_fraction=0.2)
        np.testing.assert_array_equal(workload.training, [[0, 100, 30, 3], [0, 700, 517, 0], [30, 50, 39, 10]])
        np.testing.assert_array_equal(workload.evaluation[:, 1:], [[100, 30, 1], [100, 30, 10]])
        np.testing.assert_array_equal(workload.evaluation[1:, 0], [20])
        assert workload.provenance["seconds"] == {"train": [10, 40], "evaluation": [90, 110]}
        assert workload.provenance["rows"] == 5 and workload.provenance["skipped"] == {}


def test_jobs_of_a_trace_are_kept_whole_or_left_out(tmp_path):
    random, jobs = np.random.default_rng(0), 400
    text = "".join(row(start, start + 1).replace("j_1", f"j_{random.integers(jobs)}") for start in range(4000))
    path, windowed = written(tmp_path, text), {}
    for window in (None, (0, 3000)):
        found = batch_task(path, window, 0.5, job_share=0.25)
        left_out = found.provenance["skipped"]["of a job left out"]
        assert left_out == pytest.approx(0.75 * 4000, rel=0.1)
        windowed[window] = np.concatenate([found.training, found.evaluation])
    assert len(windowed[None]) == 4000 - left_out
    shorter = windowed[0, 3000]
    np.testing.assert_array_equal(shorter, windowed[None][: len(shorter)])
    names = {line.split(",")[2] for line in text.splitlines()}
    kept = [name for name in names if zlib.crc32(name.encode()) < 2**30]
    assert len(windowed[None]) == sum(line.split(",")[2] in kept for line in text.splitlines())


def _compressed(path, text):
    with gzip.open(path, "wt") as file:
        file.write(text)


def test_bad_rows_are_skipped_and_counted(tmp_path):
    bad = [
        row(5, 4),  # ends before it starts
        row(5, "", 100, 0.3),
        row("", 9),
        row(5, 9, "", 0.3),
        row(5, 9, 100, -1),
        row(5, 9, 100, 101),
        row(5, 9, 0, 0.3),
        row(-5, 9),
        row(5, 5_000_000),
    ]
    path = written(tmp_path, "".join(bad) + row(1, 2) + row(100, 101) + row(900, 901))
    workload = batch_task(path, window=(0, 500), evaluation_fraction=0.5)
    assert len(workload.training) == len(workload.evaluation) == 1
    assert workload.provenance["skipped"] == {
        "blank": 3,
        "demand out of range": 3,
        "ends before it starts": 1,
        "outside the window": 2,  # -5 and 900
        "time out of range": 1,
    }
    assert batch_task(path).provenance["skipped"]["time out of range"] == 2


@pytest.mark.parametrize(
    "text,sentence",
    [
        (row(1, 2) + "M1,1,j_1\n", r"line 2: 3 columns, expected 9 \(task_name"),
        (row("start_time", "end_time"), r"line 1: start_time 'start_time', expected a number"),
        (row(1, 2) + row(1, "nan"), r"line 2: end_time 'nan', expected a number"),
        ("", r"none of its 0 rows is a task"),
        (row(5, 4), r"none of its 1 rows is a task .*ends before it starts"),
    ],
)
def test_a_malformed_trace_is_told_with_file_and_line(tmp_path, text, sentence):
    path = written(tmp_path, text)
    with pytest.raises(SadqError, match=sentence) as caught:
        batch_task(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_told(tmp_path):
    with pytest.raises(SadqError, match="after line 0: cannot be read"):
        make(tmp_path / "absent.csv")
    cut = tmp_path / "cut.csv.gz"
    random = np.random.default_rng(0)
    _compressed(cut, "".join(row(int(start), int(start) + 5) for start in random.integers(0, 10**6, 20_000)))
    cut.write_bytes(cut.read_bytes()[:-20_000])
    with pytest.raises(SadqError, match=r"after line [1-9]\d*: cannot be read"):
        batch_task(cut)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00,1\n")
    with pytest.raises(SadqError, match="no text in CSV format"):
        batch_task(binary)
    plain = tmp_path / "plain.csv.gz"
    plain.write_text(row(1, 2))
    with pytest.raises(SadqError, match="cannot be read"):
        batch_task(plain)


def test_a_stream_longer_than_allowed_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "MAX_TASKS", 2)
    path = written(tmp_path, row(1, 2) * 3)
    with pytest.raises(SadqError, match="line 3: more than 2 tasks arrive .* choose a shorter window"):
        batch_task(path)


@pytest.mark.parametrize("fraction", [0, 1, 1.5])
def test_a_bad_evaluation_fraction_is_told(tmp_path, fraction):
    with pytest.raises(SadqError, match="evaluation_fraction"):
        batch_task(written(tmp_path, row(1, 2)), evaluation_fraction=fraction)


def test_an_absent_hour_is_told(monkeypatch):
    monkeypatch.setattr(trace, "HOUR_PACKAGE", "no-such-package")
    with pytest.raises(SadqError, match=r"not installed: install sadq\[trace\]"):
        real_hour.__wrapped__()


@pytest.mark.skipif(not hour_installed(), reason="the real hour comes with the extra `trace`, which is not installed")
def test_the_real_hour_has_its_known_statistics():
    workload = real_hour()
    tasks = np.concatenate([workload.training, workload.evaluation])
    found = statistics(tasks)
    assert len(tasks) == 67_634 and workload.provenance["skipped"] == {} and not workload.provenance["synthetic"]
    assert {percent: found["duration_quantiles"][percent] for percent in DURATION} == DURATION
    assert found["duration_mean"] == pytest.approx(63.8, abs=0.1)
    for percent, expected in MEMORY.items():
        assert np.percentile(tasks[:, 2] / 100, percent) == pytest.approx(expected)
    assert found["rank_correlation_cores_memory"] == pytest.approx(0.55, abs=0.005)
    assert found["tasks_per_second"] == pytest.approx(18.8, abs=0.1)
    assert (tasks[:, 1] == 100).mean() == pytest.approx(0.52, abs=0.005)
    assert workload.provenance["seconds"] == {"train": [0, 2879], "evaluation": [2880, 3600]}
    assert make("hour").provenance["source"] == "spar 0.0.7: sample_tasks.csv"
