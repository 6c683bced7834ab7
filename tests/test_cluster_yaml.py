"""The cluster files against Ray's own schema, its template for Azure, and what we promise."""

import json
from pathlib import Path

import pytest
import ray
from ray.autoscaler._private.util import prepare_config, validate_config
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
FILES = ["cluster.yaml", "cluster.local.yaml"]
TEMPLATE = Path(ray.__file__).parent / "autoscaler/_private/_azure/azure-vm-template.json"


def read(name: str) -> dict:
    return YAML(typ="safe").load(ROOT / name)


def commands(config: dict) -> dict[str, str]:
    return {k: "\n".join(v) for k, v in config.items() if k.endswith("_commands")}


@pytest.mark.parametrize("name", FILES)
def test_ray_accepts_it(name):
    validate_config(prepare_config(read(name)))


@pytest.mark.parametrize("name", FILES)
def test_ray_refuses_it_with_a_key_it_does_not_know(name):
    with pytest.raises(Exception, match="max_worker'"):
        validate_config(prepare_config(read(name) | {"max_worker": 1}))


@pytest.mark.parametrize("name", FILES)
def test_the_project_and_its_requirements_come_from_the_files_here(name):
    mounts = read(name)["file_mounts"]
    ours = {target: source for target, source in mounts.items() if target.startswith("~/study/")}
    for source in ours.values():
        assert (ROOT / source).exists()
    assert {"ray_ablation", "analysis", "grids", "requirements.txt"} <= set(ours.values())
    assert "install" in commands(read(name))["setup_commands"]
    assert "-r requirements.txt" in commands(read(name))["setup_commands"]


@pytest.mark.parametrize("name", FILES)
def test_ports_token_and_storage_are_stated(name):
    config = read(name)
    said = commands(config)
    head = said["head_start_ray_commands"]
    assert "--dashboard-host=127.0.0.1" in head
    assert "0.0.0.0" not in head
    assert "RAY_AUTH_MODE=token" in said["initialization_commands"]
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert sum(text.count("STUDY_STORAGE=") for text in said.values()) == 1
    for start in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert "unset OMP_NUM_THREADS" in said[start]


def test_azure_knows_every_field_of_a_machine():
    known = json.loads(TEMPLATE.read_text())["parameters"].keys() | {"availability_zone"}
    for kind in read("cluster.yaml")["available_node_types"].values():
        assert kind["node_config"]["azure_arm_parameters"].keys() <= known


def test_workers_are_the_studys_hardware_and_the_head_has_no_gpu():
    kinds = read("cluster.yaml")["available_node_types"]
    sizes = {name: kind["node_config"]["azure_arm_parameters"] for name, kind in kinds.items()}
    assert kinds["head"]["resources"]["GPU"] == 0
    assert sizes["one-h100"]["vmSize"] == sizes["one-h100-spot"]["vmSize"]
    assert sizes["one-h100"]["vmSize"] == "Standard_NC40ads_H100_v5"
    assert sizes["eight-h100"]["vmSize"] == "Standard_ND96isr_H100_v5"
    assert [name for name, size in sizes.items() if size.get("priority") == "Spot"] == [
        "one-h100-spot"
    ]
    assert all(kind["min_workers"] == 0 for name, kind in kinds.items() if name != "head")
