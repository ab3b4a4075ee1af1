"""Checkpoints: what is saved comes back, whatever is damaged is refused, and a full disk costs nothing but itself."""

import builtins
import errno
import hashlib
import io
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_runs

from sadq.errors import SadqError
from sadq.experiment import checkpoint, storage

META = {
    "step": 8,
    "wall_seconds": 1.5,
    "compile_seconds": 0.5,
    "exact": True,
    "origin": 0,
    "chunk": 0,
    "rows": {"metrics.jsonl": 3},
}


def state_of(value, size=3):
    """A little state with the kinds of array that a real one has."""
    return {
        "weights": (jnp.full((size, 2), value, jnp.float32), jnp.arange(size, dtype=jnp.int32)),
        "flags": jnp.array([True, False]),
        "seed": jnp.array([2**32 - 1], jnp.uint32),
        "odd": jnp.array([jnp.nan, -0.0, jnp.inf, 1e-45]),
        "nothing": None,
    }


def saved(folder, collect=1, value=1.0, **outside):
    return checkpoint.save(folder, collect, state_of(value), outside, META)


def value_in(path):
    _, tensors, _ = checkpoint.load(path)
    return float(checkpoint.fill(state_of(0.0), tensors, path)["weights"][0][0, 0])


def test_every_array_comes_back_bit_for_bit(tmp_path):
    path = saved(tmp_path, value=1 / 3, actions=np.array([[1, 2]], np.int64), empty=np.zeros((0,), np.int32))
    meta, tensors, outside = checkpoint.load(path)
    state = checkpoint.fill(state_of(0.0), tensors, path)
    assert jax.tree.structure(state) == jax.tree.structure(state_of(0.0))
    for left, right in zip(jax.tree.leaves(state), jax.tree.leaves(state_of(1 / 3)), strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()
    np.testing.assert_array_equal(outside["actions"], [[1, 2]])
    assert (outside["actions"].dtype, outside["empty"].shape) == (np.int64, (0,))
    assert {name: meta[name] for name in META} == META
    assert meta["collect"] == 1


def test_arrays_that_are_not_contiguous_are_saved_as_what_they_hold(tmp_path):
    matrix = np.arange(6.0).reshape(2, 3)
    path = checkpoint.save(tmp_path, 1, {"a": jnp.zeros(1)}, {"turned": matrix.T}, META)
    np.testing.assert_array_equal(checkpoint.load(path)[2]["turned"], matrix.T)


def test_a_scalar_comes_back_as_one(tmp_path):
    state = {"counter": jnp.int32(7)}
    path = checkpoint.save(tmp_path, 1, state, {}, META)
    assert checkpoint.fill(state, checkpoint.load(path)[1], path)["counter"].shape == ()


def test_the_last_two_are_kept(tmp_path):
    for collect in (9, 10, 100, 1_000):
        saved(tmp_path, collect)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000000100", "0000001000"]
    assert checkpoint.latest(tmp_path).name == "0000001000"


def test_saving_the_same_collect_again_replaces_it(tmp_path):
    saved(tmp_path, 1, value=1.0)
    assert value_in(saved(tmp_path, 1, value=2.0)) == 2.0
    assert len(list(tmp_path.iterdir())) == 1


def test_there_is_no_newest_where_there_is_none(tmp_path):
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "nowhere") is None


def test_what_a_kill_left_half_written_is_not_taken_for_a_checkpoint(tmp_path):
    path = saved(tmp_path, 1)
    (tmp_path / ".0000000002.123.tmp").mkdir()
    (tmp_path / ".0000000002.123.tmp" / checkpoint.TENSORS).write_bytes(b"half")
    assert checkpoint.latest(tmp_path) == path


def test_what_a_kill_left_half_written_is_swept_by_the_next_save(tmp_path):
    saved(tmp_path, 1)
    (tmp_path / ".0000000002.123.tmp").mkdir()
    (tmp_path / ".0000000002.123.tmp" / checkpoint.TENSORS).write_bytes(b"half")
    saved(tmp_path, 2)
    assert tiny_runs.leftovers(tmp_path) == []


def flip_a_bit(path):
    content = bytearray((path / checkpoint.TENSORS).read_bytes())
    content[-3] ^= 1
    (path / checkpoint.TENSORS).write_bytes(content)


def truncate(path):
    (path / checkpoint.TENSORS).write_bytes((path / checkpoint.TENSORS).read_bytes()[:-1])


def rewrite(path, content, **changes):
    """Tensors and a record that agree with each other, as no accident would leave them."""
    (path / checkpoint.TENSORS).write_bytes(content)
    told(path, {"sha256": hashlib.sha256(content).hexdigest()} | changes)


def told(path, changes, forgotten=()):
    """Another record, with a checksum that agrees."""
    record = json.loads((path / checkpoint.META).read_text()) | changes
    record = {name: value for name, value in record.items() if name not in ("record_sha256", *forgotten)}
    record["record_sha256"] = checkpoint._checksum(record)
    (path / checkpoint.META).write_text(json.dumps(record))


def record(text):
    return lambda path: (path / checkpoint.META).write_bytes(text)


DAMAGES = {
    "flipped bit": (flip_a_bit, "is damaged: state.safetensors does not match its checksum"),
    "truncated": (truncate, "is damaged: state.safetensors does not match its checksum"),
    "no tensors": (lambda path: (path / checkpoint.TENSORS).unlink(), "cannot be read"),
    "no record": (lambda path: (path / checkpoint.META).unlink(), "cannot be read"),
    "garbage record": (record(b"{garbage"), "cannot be read"),
    "binary record": (record(b"\xff\xfe\x00"), "cannot be read"),
    "record that is a list": (record(b"[1, 2]"), "is not the record of a checkpoint of this version"),
    "record of another format": (record(b'{"format": 99, "collect": 1}'), "is not the record of a checkpoint"),
    "record without its collect": (record(b'{"format": 1}'), "is not the record of a checkpoint"),
    "not safetensors": (lambda path: rewrite(path, b"PK\x03\x04 a pickle, say"), "is not a safetensors file"),
    "empty tensors": (lambda path: rewrite(path, b""), "is not a safetensors file"),
}


@pytest.mark.parametrize(("damage", "sentence"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_refused_with_advice(tmp_path, damage, sentence):
    path = saved(tmp_path)
    damage(path)
    with pytest.raises(SadqError, match=sentence) as refusal:
        checkpoint.load(path)
    assert f"delete {path} to resume from the checkpoint before it" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_checkpoint_of_other_sizes_is_refused_by_the_tensor_that_differs(tmp_path):
    path = saved(tmp_path)
    _, tensors, _ = checkpoint.load(path)
    with pytest.raises(SadqError, match=r"does not belong to this run: .*weights.* should be float32\[4, 2\] but the file "
                                        r"has float32\[3, 2\]; resume the run that it was saved by"):  # fmt: skip
        checkpoint.fill(state_of(0.0, size=4), tensors, path)


def test_a_checkpoint_of_another_type_is_refused(tmp_path):
    path = saved(tmp_path)
    _, tensors, _ = checkpoint.load(path)
    with pytest.raises(SadqError, match=r"should be int32\[2\] but the file has bool\[2\]"):
        checkpoint.fill(state_of(0.0) | {"flags": jnp.array([1, 2])}, tensors, path)


def test_a_checkpoint_that_lacks_a_tensor_is_refused(tmp_path):
    path = saved(tmp_path)
    _, tensors, _ = checkpoint.load(path)
    with pytest.raises(SadqError, match=r"'nothing'.* should be float32\[1\] but the file has nothing"):
        checkpoint.fill(state_of(0.0) | {"nothing": jnp.zeros(1)}, tensors, path)


def test_a_checkpoint_with_a_tensor_too_many_is_refused(tmp_path):
    path = saved(tmp_path)
    _, tensors, _ = checkpoint.load(path)
    smaller = state_of(0.0)
    del smaller["flags"]
    with pytest.raises(SadqError, match="does not belong to this run"):
        checkpoint.fill(smaller, tensors, path)


@pytest.mark.parametrize("missing", ["step", "wall_seconds", "compile_seconds", "exact", "origin", "rows", "format"])
def test_a_record_that_lacks_what_a_resume_reads_is_refused(tmp_path, missing):
    path = saved(tmp_path)
    told(path, {}, [missing])
    with pytest.raises(SadqError, match="is not the record of a checkpoint"):
        checkpoint.load(path)


@pytest.mark.parametrize("changes", [{"collect": True}, {"step": "8"}, {"rows": []}, {"exact": 1}, {"sha256": None}])
def test_a_record_of_other_types_is_refused(tmp_path, changes):
    path = saved(tmp_path)
    told(path, changes)
    with pytest.raises(SadqError, match="is not the record of a checkpoint"):
        checkpoint.load(path)


def test_every_flipped_byte_of_a_record_is_noticed(tmp_path):
    path = saved(tmp_path)
    content = (path / checkpoint.META).read_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        (path / checkpoint.META).write_bytes(flipped)
        try:
            meta, *_ = checkpoint.load(path)
        except SadqError:
            continue
        assert json.loads(flipped) == json.loads(content) and meta["collect"] == 1, "only blanks may change unseen"


def test_a_record_of_the_format_before_is_read_and_began_at_0(tmp_path):
    path = saved(tmp_path)
    record = json.loads((path / checkpoint.META).read_text()) | {"format": 1}
    earlier = {name: value for name, value in record.items() if name not in (*checkpoint.EARLIER, "record_sha256")}
    (path / checkpoint.META).write_text(json.dumps(earlier))
    meta, *_ = checkpoint.load(path)
    assert (meta["origin"], meta["rows"], meta["collect"]) == (0, {}, 1)


def test_loading_a_checkpoint_runs_no_code(tmp_path):
    """A pickle with the right checksum is refused by its format, not opened."""
    import pickle

    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    path = saved(tmp_path)
    rewrite(path, pickle.dumps(Trap()))
    with pytest.raises(SadqError, match="is not a safetensors file"):
        checkpoint.load(path)
    assert not (tmp_path / "sprung").exists()


def fail_with(code):
    def failing(*arguments, **options):
        raise OSError(code, os.strerror(code))

    return failing


class FullFile(io.FileIO):
    """A file on a disk that has room for its first ten bytes."""

    def write(self, content):
        super().write(bytes(content)[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half_written(path, mode="r", *arguments, **options):
    return FullFile(path, mode.replace("b", "")) if "w" in mode else builtins.open(path, mode, *arguments, **options)


FAILURES = {
    "while writing": lambda patch: patch.setattr(storage, "open", half_written, raising=False),
    "while syncing": lambda patch: patch.setattr(os, "fsync", fail_with(errno.ENOSPC)),
    "over quota": lambda patch: patch.setattr(os, "fsync", fail_with(errno.EDQUOT)),
    "while moving into place": lambda patch: patch.setattr(os, "replace", fail_with(errno.ENOSPC)),
    "while making the folder": lambda patch: patch.setattr(os, "mkdir", fail_with(errno.ENOSPC)),
}


@pytest.mark.parametrize("fill_the_disk", FAILURES.values(), ids=FAILURES)
def test_a_full_disk_while_saving_leaves_the_previous_checkpoint_and_nothing_else(tmp_path, fill_the_disk):
    previous = saved(tmp_path, 1, value=7.0)
    with pytest.MonkeyPatch.context() as patch:
        fill_the_disk(patch)
        with pytest.raises(SadqError, match="Could not save a checkpoint of [0-9,]+ bytes under .*: the disk is full; "
                                            "the previous one, .*0000000001, is intact: make room and resume"):  # fmt: skip
            saved(tmp_path, 2)
    assert checkpoint.latest(tmp_path) == previous
    assert value_in(previous) == 7.0
    assert tiny_runs.leftovers(tmp_path) == []


def test_a_full_disk_at_the_first_checkpoint_says_that_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", fail_with(errno.ENOSPC))
    with pytest.raises(SadqError, match="the disk is full: make room and start again"):
        saved(tmp_path / "checkpoints", 1)
    assert checkpoint.latest(tmp_path / "checkpoints") is None


def test_a_full_disk_before_the_first_checkpoint_is_a_sentence_too(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "mkdir", fail_with(errno.ENOSPC))
    with pytest.raises(SadqError, match="the disk is full"):
        saved(tmp_path / "checkpoints", 1)


def test_saving_works_again_once_there_is_room(tmp_path):
    saved(tmp_path, 1, value=1.0)
    with pytest.MonkeyPatch.context() as patch:
        FAILURES["while syncing"](patch)
        with pytest.raises(SadqError):
            saved(tmp_path, 2, value=2.0)
    assert value_in(saved(tmp_path, 2, value=2.0)) == 2.0


def test_another_failure_is_named_as_what_it_is(tmp_path, monkeypatch):
    saved(tmp_path, 1)
    monkeypatch.setattr(os, "fsync", fail_with(errno.EIO))
    with pytest.raises(SadqError, match="Input/output error; the previous one"):
        saved(tmp_path, 2)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    storage.write_atomically(path, b"before")
    monkeypatch.setattr(storage, "open", half_written, raising=False)
    with pytest.raises(OSError, match="No space left"):
        storage.write_atomically(path, b"after, at some length")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
