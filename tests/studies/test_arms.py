"""The grammar of arms: what each spelling makes of a config, and one sentence for whatever cannot be read."""

import dataclasses

import pytest

from sadq.core.gates import SampleReliability
from sadq.errors import SadqError
from sadq.experiment.presets import preset
from sadq.networks import Categorical, Dense
from sadq.replay import Prioritised
from sadq.studies.arms import Arm, bases, parse_arms

SHARED = preset("acrobot")


def config(text: str):
    return Arm.parse(text).config(SHARED)


def test_an_agent_alone_is_the_presets():
    assert config("dueling") == preset("acrobot", "dueling")
    assert config("dueling+sadq") == config("sadq") == preset("acrobot", "dueling+sadq")
    assert config("Rainbow+SADQ") == preset("acrobot", "rainbow+sadq")


def test_alpha_follows_an_at():
    assert config("dqn+sadq@0.5") == preset("acrobot", "dqn+sadq", alpha=(0.5,))
    assert config("dqn+sadq@1").alpha == (1.0,)
    assert Arm.parse("sadq@0.50").label == "dueling+sadq@0.5"


def test_settings_follow_a_colon():
    found = config("dueling+sadq@0.5:gate=sample,n-step=3,learning_rate=0.01,dueling=False")
    expected = {"gate": SampleReliability(), "n_step": 3, "learning_rate": (0.01,), "dueling": False}
    assert found == preset("acrobot", "dueling+sadq", alpha=(0.5,), **expected)
    nested = config("dqn+sadq:guidance.updates_per_collect=5,model.continuation=true,encoder.hidden=[8,8]")
    assert nested.guidance == dataclasses.replace(SHARED.guidance, updates_per_collect=5)
    assert nested.model == dataclasses.replace(SHARED.model, continuation=True)
    assert nested.encoder == Dense((8, 8))


def test_a_choice_is_made_before_its_settings_whatever_the_order():
    found = config("dqn:replay.exponent=0.3,replay=prioritised")
    assert found.replay == Prioritised(exponent=0.3)
    assert config("c51:head.atoms=21").head == Categorical(atoms=21, support=(-100.0, 0.0)), "on the preset's support"
    assert config("dqn:head=categorical").head == Categorical(support=(-100.0, 0.0))
    assert config("rainbow:replay=None,noisy=None") == preset("acrobot", "rainbow")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("dqm", "Unknown agent 'dqm'"),
        ("dqn@0.5", "is a plain agent, which has no alpha: write dqn+sadq@0.5"),
        ("dqn+sadq@half", "'half' after its @ is no number"),
        ("dqn+sadq@2", "alpha"),
        ("dqn:", "has no setting after its colon"),
        ("dqn:gate", "'gate' is no setting, expected name=value"),
        ("dqn:seeds=3", "sets seeds, which is no setting of an arm: arms are compared on the same ones"),
        ("dqn+sadq:alpha=0.5", "write it after an @"),
        ("dqn:gaet=sample", "Arm dqn:gaet=sample: there is no setting 'gaet': expected one of"),
        ("dqn+sadq:gate=simple", "gate = 'simple' is unknown (did you mean sample?)"),
        ("dqn:batch_size=many", "batch_size is 'many', expected int"),
        ("dqn:batch_size.x=1", "batch_size has no settings of its own"),
        ("dqn:head.atoms=3", "there is no setting 'atoms': expected one of huber"),
        ("dqn:intended=ucb", "needs an ensemble of 2 or more"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(text, sentence):
    with pytest.raises(SadqError) as refusal:
        config(text)
    assert sentence in str(refusal.value) and "\n" not in str(refusal.value)


def test_arms_have_folders_that_differ():
    texts = ["dueling", "dueling+sadq", "dueling+sadq@0.5", "dqn:encoder.hidden=[8,8]", "dqn:encoder.hidden=[88]"]
    folders = [arm.folder for arm in parse_arms(texts)]
    assert folders[:3] == texts[:3] and len(set(folders)) == 5
    with pytest.raises(SadqError, match="dueling\\+sadq was given more than once"):
        parse_arms(["sadq", "dueling+sadq"])
    with pytest.raises(SadqError, match="1 arm given, expected at least 2"):
        parse_arms(["sadq"])


def test_a_guided_arm_is_compared_with_its_twin_and_others_with_the_first():
    arms = parse_arms(["dqn", "dqn+sadq", "double", "double+sadq@0.5", "c51+sadq"])
    assert bases(arms) == {
        "dqn+sadq": "dqn",
        "double": "dqn",
        "double+sadq@0.5": "double",
        "c51+sadq": "dqn",
    }
    turned = parse_arms(["dqn+sadq", "dqn", "c51"])
    assert bases(turned) == {"dqn+sadq": "dqn", "c51": "dqn+sadq"}, "no pair both ways round"
    assert set(bases(arms, "double").values()) == {"double"} and len(bases(arms, "double")) == 4
    with pytest.raises(SadqError, match="There is no arm dueling to compare with"):
        bases(arms, "dueling")
