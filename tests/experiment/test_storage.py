"""Files and folders that are replaced whole, whatever the file system can do and whatever fails on the way."""

import errno
import os

import pytest

from sadq.experiment import storage


def filled(path, content):
    path.mkdir()
    (path / "file").write_text(content)
    (path / "inner").mkdir()
    (path / "inner" / "file").write_text(content)


def cannot(*_):
    raise OSError(errno.EINVAL, "this file system cannot")


@pytest.fixture(params=[True, False])
def any_file_system(request, monkeypatch):
    """One that can exchange two folders in a step, and one that cannot."""
    if not request.param:
        monkeypatch.setattr(storage, "exchange", cannot)


def test_a_folder_is_replaced_whole(tmp_path, any_file_system):
    filled(tmp_path / "folder", "old")
    with storage.replacing(tmp_path / "folder") as beside:
        filled(beside, "new")
        assert (tmp_path / "folder" / "file").read_text() == "old"
    assert (tmp_path / "folder" / "inner" / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_folder_stays_where_its_replacement_fails(tmp_path, any_file_system):
    filled(tmp_path / "folder", "old")
    with pytest.raises(ZeroDivisionError), storage.replacing(tmp_path / "folder") as beside:
        filled(beside, "new")
        _ = 1 / 0
    assert (tmp_path / "folder" / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_an_exchange_that_fails_for_another_reason_is_told(tmp_path, monkeypatch):
    def forbidden(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    filled(tmp_path / "folder", "old")
    monkeypatch.setattr(storage, "exchange", forbidden)
    with pytest.raises(PermissionError), storage.replacing(tmp_path / "folder") as beside:
        filled(beside, "new")
    assert (tmp_path / "folder" / "file").read_text() == "old"


def test_two_folders_change_places_in_one_step(tmp_path):
    filled(tmp_path / "a", "a")
    filled(tmp_path / "b", "b")
    try:
        storage.exchange(tmp_path / "a", tmp_path / "b")
    except OSError as error:
        assert error.errno in storage.UNSUPPORTED
        pytest.skip("this file system cannot")
    assert [(tmp_path / name / "file").read_text() for name in "ab"] == ["b", "a"]
    with pytest.raises(FileNotFoundError):
        storage.exchange(tmp_path / "a", tmp_path / "c")


def test_what_a_kill_left_aside_is_put_back_or_deleted(tmp_path):
    filled(tmp_path / ".folder.previous", "old")
    storage.recover(tmp_path / "folder")
    assert (tmp_path / "folder" / "file").read_text() == "old"
    filled(tmp_path / ".folder.previous", "older")
    storage.recover(tmp_path / "folder")
    assert (tmp_path / "folder" / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_link_is_deleted_and_not_what_it_leads_to(tmp_path):
    filled(tmp_path / "precious", "kept")
    filled(tmp_path / "folder", "gone")
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "precious")
    (tmp_path / "folder" / "broken").symlink_to(tmp_path / "nowhere")
    storage.remove(tmp_path / "folder")
    storage.remove(tmp_path / "nothing")
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    assert (tmp_path / "precious" / "inner" / "file").read_text() == "kept"


def test_a_new_file_is_synced_before_it_is_moved_and_its_folder_after(tmp_path, monkeypatch):
    order = []
    for verb in ("write", "move", "sync"):
        real = getattr(storage, verb)
        monkeypatch.setattr(storage, verb, lambda *given, verb=verb, real=real: order.append(verb) or real(*given))
    storage.write_atomically(tmp_path / "file", b"content")
    assert order == ["write", "sync", "move", "sync"]


def test_folders_are_made_from_the_top_each_known_to_the_one_above(tmp_path, monkeypatch):
    done = []
    for verb in ("make", "sync"):
        real = getattr(storage, verb)
        monkeypatch.setattr(storage, verb, lambda at, verb=verb, real=real: done.append((verb, at.name)) or real(at))
    storage.make_folders(tmp_path / "a" / "b")
    assert done == [("make", "a"), ("sync", tmp_path.name), ("make", "b"), ("sync", "a")]
    storage.make_folders(tmp_path / "a" / "b")
    assert len(done) == 4


@pytest.mark.parametrize(
    ("code", "folder", "passes"), [("EINVAL", True, True), ("EINVAL", False, False), ("EIO", True, False)]
)
def test_a_file_system_without_syncing_of_folders_is_put_up_with(tmp_path, monkeypatch, code, folder, passes):
    (tmp_path / "file").write_text("")

    def fail(_):
        raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

    monkeypatch.setattr(os, "fsync", fail)
    path = tmp_path if folder else tmp_path / "file"
    if passes:
        storage.sync(path)
    else:
        with pytest.raises(OSError, match=os.strerror(getattr(errno, code))):
            storage.sync(path)
