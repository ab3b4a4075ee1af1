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
    assert [arm.label for arm in parse_arms(["dqn+sadq@0.12345671", "dqn+sadq@.12345672"])] == [
        "dqn+sadq@0.12345671",
        "dqn+sadq@0.12345672",
    ]


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
        ("dqn:gate=sample", "is a plain agent, which makes no use of gate: write dqn+sadq:gate=... for its twin"),
        ("dqn:guidance.samples=2", "is a plain agent, which makes no use of guidance.samples"),
        ("dqn+sadq@half", "'half' after its @ is no number"),
        ("dqn+sadq@2", "alpha"),
        ("dqn:", "has no setting after its colon"),
        ("dqn:gate", "'gate' is no setting, expected name=value"),
        ("dqn:n_step=3,,noisy=true", "'' is no setting, expected name=value"),
        ("dqn:n_step=3,n-step=5", "sets n_step more than once: give it one value"),
        (
            "dqn:steps=800",
            "sets steps, which is no setting of an arm: it is the same for all arms, so give it to the whole",
        ),
        ("dqn:environment_settings=[bits=2]", "it is the same for all arms"),
        ("dqn:max-episode-steps=9", "it is the same for all arms"),
        ("dqn:evaluations=2", "it is the same for all arms"),
        ("dqn:evaluation_episodes=2", "it is the same for all arms"),
        ("dqn:workers=2", "it is the same for all arms"),
        ("dqn:deterministic=true", "it is the same for all arms"),
        ("dqn:checkpoint_seconds=2", "it is the same for all arms"),
        (
            "dqn:learning_rate=[0.1,0.2]",
            "has several values of learning_rate, expected one: write an arm for each value",
        ),
        ("dqn:epsilon.start=[0.5,1]", "has several values of epsilon_start"),
        ("dqn+sadq:model=rssm,model.foo=1", "there is no setting 'foo': expected one of deterministic"),
        (None, "None is no arm: expected a text such as"),
        ("dqn:seeds=3", "sets seeds, which is no setting of an arm: arms are compared on the same ones"),
        ("dqn+sadq:alpha=0.5", "write it after an @"),
        ("dqn+sadq:gaet=sample", "Arm dqn+sadq:gaet=sample: there is no setting 'gaet': did you mean gate?"),
        ("dqn:batchsize=8", "there is no setting 'batchsize': did you mean batch_size?"),
        ("dqn+sadq:guidance.sample=2", "there is no setting 'sample': did you mean samples?"),
        ("dqn:hidden=8", "there is no setting 'hidden': expected one of measures, learning_starts"),
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


def test_a_sweep_that_all_share_is_no_arm():
    shared = dataclasses.replace(preset("acrobot", "dqn+sadq"), alpha=(0.0, 0.9))
    assert Arm.parse("dqn").config(shared).alpha is None and Arm.parse("dqn+sadq@0.5").config(shared).alpha == (0.5,)
    with pytest.raises(SadqError, match="dqn\\+sadq has several values of alpha.*as in dqn\\+sadq@0 dqn\\+sadq@0.5"):
        Arm.parse("dqn+sadq").config(shared)


def test_arms_have_folders_that_differ():
    texts = ["dueling", "dueling+sadq", "dueling+sadq@0.5", "dqn:encoder.hidden=[8,8]", "dqn:encoder.hidden=[88]"]
    folders = [arm.folder for arm in parse_arms(texts)]
    assert folders[:3] == texts[:3] and len(set(folders)) == 5
    with pytest.raises(SadqError, match="dueling\\+sadq was given more than once"):
        parse_arms(["sadq", "dueling+sadq"])
    with pytest.raises(SadqError, match="1 arm given, expected at least 2"):
        parse_arms(["sadq"])
    for arms in ("dqn", 3):
        with pytest.raises(SadqError, match="must be a list of arms"):
            parse_arms(arms)


def test_a_folder_has_one_label_and_a_length_that_every_file_system_takes():
    kept = {"dqn:n_step=3,replay=prioritised": "dqn-n_step=3-replay=prioritised", "dqn:x=[8,8],y=1": "dqn-x=-8-8-y=1"}
    assert {text: Arm.parse(text).folder for text in kept} == kept
    texts = [
        f"dqn+sadq:model_from={name}" for name in ("/a/B", "/a/b", "é", "ü", "a-b", "-5", "[5]", "5", "5-", "x" * 300)
    ]
    folders = [arm.folder for arm in parse_arms(["dqn:encoder.hidden=[8,8]", "dqn:encoder.hidden=[8 8]", *texts])]
    assert len({folder.lower() for folder in folders}) == 12 and max(map(len, folders)) < 120


def test_a_guided_arm_is_compared_with_its_twin_and_others_with_the_first():
    arms = parse_arms(["dqn", "dqn+sadq", "double", "double+sadq@0.5", "c51+sadq"])
    assert bases(arms) == {
        "dqn+sadq": "dqn",
        "double": "dqn",
        "double+sadq@0.5": "double",
        "c51+sadq": "dqn",
    }
    settled = parse_arms(
        ["dqn", "dqn:n_step=1,dueling=true", "dqn+sadq:dueling=true,gate=sample,n_step=1", "dqn+sadq:n_step=3"]
    )
    assert bases(settled) == {
        "dqn:n_step=1,dueling=true": "dqn",
        "dqn+sadq:dueling=true,gate=sample,n_step=1": "dqn:n_step=1,dueling=true",
        "dqn+sadq:n_step=3": "dqn",
    }
    turned = parse_arms(["dqn+sadq", "dqn", "c51"])
    assert bases(turned) == {"dqn+sadq": "dqn", "c51": "dqn+sadq"}, "no pair both ways round"
    assert set(bases(arms, "double").values()) == {"double"} and len(bases(arms, "double")) == 4
    with pytest.raises(SadqError, match="There is no arm dueling to compare with"):
        bases(arms, "dueling")
    with pytest.raises(SadqError, match="Unknown agent ''"):
        bases(arms, "")
