"""What the paper says of the runs on a page: its tables' numbers, and its sentences where it has only figures.

Source: "Revisiting TD Target Aggregation under Uncertainty in Q-Learning" (UAI 2026): its table of Atari-100K, "normalized
scores averaged over 20 evaluations per seed", most likely the signed rewards of a life (`docs/atari.md`), five seeds; its
section on conventional tasks and its appendix on CartPole for the sentences. It prints no numbers for vector environments.
"""

import re
from collections.abc import Sequence

from sadq.report.lines import Line

ATARI_AGENTS = ("qrdqn", "qrdqn+sadq", "iqn", "iqn+sadq", "coact", "coact+sadq")
ATARI = {
    "Alien": (12.49, 14.22, 10.08, 10.98, 10.74, 11.54),
    "Amidar": (2.48, 3.15, 2.61, 3.04, 2.06, 2.85),
    "Assault": (4.82, 4.86, 4.80, 4.63, 3.79, 4.03),
    "Asterix": (2.27, 2.45, 1.62, 1.74, 1.75, 2.07),
    "BankHeist": (0.30, 0.23, 0.08, 0.08, 0.15, 0.21),
    "BattleZone": (0.41, 0.61, 0.42, 0.46, 0.70, 0.99),
    "Boxing": (2.62, 3.92, -31.27, -26.91, 2.84, 3.43),
    "Breakout": (2.00, 2.38, 2.30, 2.31, 1.38, 1.43),
    "ChopperCommand": (1.83, 2.02, 1.63, 1.37, 1.80, 1.88),
    "CrazyClimber": (15.23, 23.11, 16.12, 29.93, 24.17, 28.81),
    "DemonAttack": (3.82, 4.09, 4.12, 4.01, 3.46, 3.23),
    "Gopher": (3.91, 4.99, 2.83, 3.41, 7.18, 7.56),
    "Hero": (1.63, 3.30, 1.06, 2.08, 3.09, 6.40),
    "Jamesbond": (0.16, 0.24, 0.18, 0.22, 0.17, 0.18),
    "Kangaroo": (0.26, 0.22, 0.04, 0.02, 0.35, 0.24),
    "Krull": (76.34, 77.04, 67.17, 69.77, 74.60, 77.81),
    "KungFuMaster": (7.70, 8.93, 1.60, 4.65, 1.74, 2.05),
    "MsPacman": (16.23, 17.30, 15.46, 17.09, 12.93, 13.21),
    "Pong": (-14.96, -14.27, -20.70, -20.70, -16.88, -16.66),
    "PrivateEye": (-1.35, -1.85, -21.00, -8.46, -4.91, -2.95),
    "Qbert": (3.42, 3.54, 2.25, 3.04, 2.11, 2.30),
    "RoadRunner": (1.66, 1.65, 2.08, 2.69, 0.91, 0.93),
    "Seaquest": (2.80, 3.22, 1.84, 2.59, 2.48, 2.63),
    "UpNDown": (5.28, 5.55, 4.35, 4.57, 4.29, 4.56),
}

IMPROVED = "SADQ improves every base agent it was tried on (DQN, Double, Dueling, SUNRISE)"
CLAIMS = {
    r"Acrobot-v1": f"{IMPROVED}, with the highest or competitive final returns and steadier training.",
    r"BitFlip(-\d+)?": f"{IMPROVED}, with the highest or competitive final returns and steadier training.",
    r"LunarLander-v\d": f"{IMPROVED}, with the highest or competitive final returns and steadier training.",
    r"CartPole-v\d": "SADQ stays far below every baseline here, and learns faster the more often its model is updated.",
    r"CityFlow": "SADQ has the highest evaluation return throughout training, above Dueling, BDQN and Rainbow.",
    r"OCloud": "SADQ has the highest evaluation return throughout training, above Dueling, BDQN and Rainbow.",
}


def claim(environment: str) -> str | None:
    """What the paper says in words of an environment; its settings do not matter for that."""
    name = environment.partition(",")[0]
    return next((words for pattern, words in CLAIMS.items() if re.fullmatch(pattern, name)), None)


def score(line: Line) -> float | None:
    """The score that the paper's table has for a game and an agent."""
    game = line.environment.partition(",")[0].removeprefix("atari/")
    if not line.environment.startswith("atari/") or game not in ATARI or line.run.agent not in ATARI_AGENTS:
        return None
    return ATARI[game][ATARI_AGENTS.index(line.run.agent)]


def scores(lines: Sequence[Line]) -> dict[str, float]:
    """Label -> the paper's score, of the lines that it has one for."""
    found = {line.label: score(line) for line in lines}
    return {label: value for label, value in found.items() if value is not None}
