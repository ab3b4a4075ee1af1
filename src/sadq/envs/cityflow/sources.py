"""Where a scenario comes from: a configuration's files with their checksums, or a generated grid."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from sadq.envs.cityflow.files import Scenario, read_flows, read_road_net, read_scenario
from sadq.envs.cityflow.grid import Grid
from sadq.errors import SadqError


@dataclasses.dataclass(frozen=True)
class ConfigFile:
    """A CityFlow configuration; two are equal where all three of its files are."""

    path: str = dataclasses.field(compare=False)
    sha256: tuple[str, ...]  # of the configuration, the road net and the flow

    def scenario(self) -> Scenario:
        return read_scenario(self.path)

    def config_path(self, folder: Path) -> Path:
        """The configuration, which is where it is."""
        return Path(self.path)


@dataclasses.dataclass(frozen=True)
class NetFiles:
    """A road net and a flow without a configuration: steps of a second, signals set from outside, no lane change."""

    roadnet: str = dataclasses.field(compare=False)
    flow: str = dataclasses.field(compare=False)
    sha256: tuple[str, ...]  # of both

    def scenario(self) -> Scenario:
        net = read_road_net(self.roadnet)
        return Scenario(1.0, 0, True, net, read_flows(self.flow, net), self.flow)

    def config_path(self, folder: Path) -> Path:
        """A configuration that names both, written into the folder."""
        content = {"interval": 1.0, "seed": 0, "dir": "", "roadnetFile": self.roadnet, "flowFile": self.flow}
        path = folder / "config.json"
        path.write_text(json.dumps(content | {"rlTrafficLight": True, "laneChange": False, "saveReplay": False}))
        return path


Source = Grid | ConfigFile | NetFiles


def net_files(roadnet: str | Path, flow: str | Path) -> NetFiles:
    """Two files as a source; they are read once, for the sentence that tells what is wrong with them."""
    _check_paths(roadnet=roadnet, flow=flow)
    read_flows(flow, read_road_net(roadnet))
    places = [Path(roadnet).resolve(), Path(flow).resolve()]
    digests = tuple(hashlib.sha256(one.read_bytes()).hexdigest() for one in places)
    return NetFiles(str(places[0]), str(places[1]), digests)


def config_file(path: str | Path) -> ConfigFile:
    """A configuration as a source; its files are read once, for the sentence that tells what is wrong with them."""
    _check_paths(config=path)
    read_scenario(path)
    files = (Path(path), *named_files(Path(path)))
    return ConfigFile(str(Path(path).resolve()), tuple(hashlib.sha256(one.read_bytes()).hexdigest() for one in files))


def _check_paths(**given: Any) -> None:
    for name, path in given.items():
        if not isinstance(path, str | Path):
            raise SadqError(f"{name} is {path!r}, expected the path of a file: give one.")


def named_files(config: Path) -> tuple[Path, Path]:
    """The road net and the flow that a configuration names, relative to its folder or else to the present one."""
    content = json.loads(config.read_text(encoding="utf-8"))
    places = [Path(content.get("dir", "")) / content[key] for key in ("roadnetFile", "flowFile")]
    net, flow = (config.parent / one if (config.parent / one).exists() else one for one in places)
    return net, flow


def record(source: Source) -> dict[str, Any]:
    """A source as JSON data."""
    if isinstance(source, ConfigFile):
        names = ("config", "roadnet", "flow")
        return {"source": source.path, "sha256": dict(zip(names, source.sha256, strict=True))}
    if isinstance(source, NetFiles):
        return {"source": source.roadnet, "sha256": dict(zip(("roadnet", "flow"), source.sha256, strict=True))}
    return {"source": "generated grid", "grid": dataclasses.asdict(source)}
