"""A run in numbers."""

from sadq.experiment.results import trained_seconds


def test_compilation_is_no_training_unless_it_was_beside_itself():
    assert trained_seconds(10.0, 4.0) == 6.0
    assert trained_seconds(1.6, 1.7) == 1.6
