"""The commit of the source: this one's, a copy's from $COMMIT, and none where the files belong to somebody else."""

import re
import subprocess
from pathlib import Path

import sadq
from sadq.experiment import source


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=b", *words], cwd=folder, check=True)


def test_a_copy_says_its_commit_by_the_environment(monkeypatch):
    monkeypatch.setenv("COMMIT", "abc1234-dirty")
    assert source.commit() == "abc1234-dirty"


def test_the_source_of_a_checkout_is_known_and_changes_are_marked(tmp_path, monkeypatch):
    monkeypatch.delenv("COMMIT", raising=False)
    (tmp_path / "__init__.py").touch()
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "__init__.py").touch()
    assert source._described(tmp_path / "installed") is None, "no repository"
    source._described.cache_clear()
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "__init__.py")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    assert source._described(tmp_path / "installed") is None, "somebody else's repository"
    monkeypatch.setattr(sadq, "__file__", str(tmp_path / "__init__.py"))
    clean = source.commit()
    assert re.fullmatch(r"[0-9a-f]{7,40}", clean)
    (tmp_path / "__init__.py").write_text("changed")
    assert source.commit() == clean, "it is asked once, for the whole life of a process"
    source._described.cache_clear()
    assert source.commit() == f"{clean}-dirty"
