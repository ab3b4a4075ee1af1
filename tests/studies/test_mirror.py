"""A worker without the sweep's disk: what it made comes back whole, and the next worker takes it up."""

from pathlib import Path

import pytest

from sadq.studies import mirror
from sadq.studies.mirror import Keeper, Mirror


@pytest.fixture
def keeper(tmp_path) -> Keeper:
    return Keeper(str(tmp_path / "gathered"))


def worker(keeper: Keeper, path: Path) -> Mirror:
    made = Mirror(path, "runs/dqn", lambda method, *given: getattr(keeper, method)(*given))
    made.fetch()
    return made


def save(path: Path, number: int) -> None:
    folder = path / "checkpoints" / f"{number:010d}"
    folder.mkdir(parents=True)
    (folder / "state.safetensors").write_bytes(bytes([number]))
    (folder / "checkpoint.json").write_text(str(number))


def contents(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def test_the_next_worker_begins_where_the_lost_one_had_saved(keeper, tmp_path):
    first = worker(keeper, tmp_path / "first")
    (tmp_path / "first" / "config.json").write_text("{}")
    for number in (1, 2, 3):
        (tmp_path / "first" / "metrics.jsonl").write_text("row\n" * number)
        save(tmp_path / "first", number)
        first.push()
    gathered = tmp_path / "gathered" / "runs" / "dqn"
    assert sorted(path.name for path in (gathered / "checkpoints").iterdir()) == ["0000000002", "0000000003"]
    worker(keeper, tmp_path / "second")
    assert contents(tmp_path / "second") == {
        "config.json": b"{}",
        "metrics.jsonl": b"row\n" * 3,
        "checkpoints/0000000003/state.safetensors": b"\x03",
        "checkpoints/0000000003/checkpoint.json": b"3",
    }


def test_rows_are_sent_now_and_then_and_at_the_end(keeper, tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(mirror.time, "monotonic", lambda: now[0])
    path, gathered = tmp_path / "run", tmp_path / "gathered" / "runs" / "dqn" / "metrics.jsonl"
    made = worker(keeper, path)
    (path / "metrics.jsonl").write_text("1\n")
    made.push()
    assert not gathered.exists()
    now[0] += mirror.SECONDS_BETWEEN_PUSHES
    made.push()
    assert gathered.read_text() == "1\n"
    (path / "metrics.jsonl").write_text("1\n2\n")
    made.push()
    assert gathered.read_text() == "1\n"
    made.push(everything=True)
    assert gathered.read_text() == "1\n2\n"


def test_the_result_is_sent_last(keeper, tmp_path):
    asked = []
    made = Mirror(tmp_path / "run", "runs/dqn", lambda *given: asked.append(given) or keeper.stored("nothing"))
    made.fetch()
    for name in ("result.json", "evaluations.jsonl", "config.json"):
        (tmp_path / "run" / name).write_text(name)
    made.push(everything=True)
    assert [given[2] for given in asked[1:]] == ["config.json", "evaluations.jsonl", "result.json"]


def test_news_are_told_once(keeper):
    keeper.tell("dqn", ("started", 0, 10, "here"))
    assert keeper.news() == [("dqn", ("started", 0, 10, "here"))] and keeper.news() == []
