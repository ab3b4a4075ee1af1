"""Names as a reader meets them: environments, and what is recorded of runs."""

import re

QUANTITIES = {
    "returns": "Return",
    "delta_q": "ΔQ",
    "overestimation": "Overestimation",
    "disagreement": "Disagreement",
    "agreement": "Agreement beyond chance",
    "alpha": "α after the gate",
    "model_state_loss": "Model: error of the next state",
    "model_reward_loss": "Model: error of the reward",
}
MEASURED = {
    "average_travel_time": ("Average travel time", "seconds a vehicle, those still under way counted up to now"),
    "throughput": ("Throughput", "vehicles that reached their goal"),
    "queue_length": ("Queue length", "vehicles that wait before signals, mean over decisions"),
    "final_queue": ("Final queue", "vehicles that wait before signals at the end"),
    "vehicles_inside": ("Vehicles inside", "on the road net at the end"),
    "vehicles_outside": ("Vehicles outside", "that could not enter by the end"),
    "mean_latency": ("Latency", "seconds from a task's arrival to its start, mean"),
    "mean_power": ("Power", "in peak powers of a server, mean over decisions"),
    "mean_waited": ("Waiting", "seconds that all tasks waited between two decisions, mean"),
    "final_waiting": ("Final queue", "tasks that wait at the end"),
    "lost_tasks": ("Lost tasks", "for which no server had room in its queue"),
    "raw_score": ("Raw score", "of whole games"),
    "human_normalised": ("Human-normalised score", "random play has 0, a human player 1"),
}
"""What environments measure beside returns -> its title and its unit."""


def in_words(environment: str) -> str:
    """`BitFlip` -> `BitFlip with 8 bits`; other names speak for themselves."""
    match = re.fullmatch(r"BitFlip(?:-(\d+))?(, .*)?", environment)
    return f"BitFlip with {match[1] or 8} bits{match[2] or ''}" if match else environment


def measured_in_words(name: str) -> tuple[str, str]:
    """(title, what it is) of something that an environment measures."""
    return MEASURED.get(name, (name.replace("_", " ").capitalize(), "as the environment measures it"))
