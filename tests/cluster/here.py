"""cluster.local.yaml for this machine alone, printed: its loopback, a key and folder of the test.

    python tests/cluster/here.py FOLDER

What it replaces are the addresses, the key, the storage and the installation, for which the
environment of the checkout stands in; the mounts and the commands that start Ray are the file's.
"""

import sys
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]


def main(folder: Path) -> None:
    """Print it."""
    yaml = YAML()
    config = yaml.load(ROOT / "cluster.local.yaml")
    config["provider"] |= {"head_ip": "127.0.0.1", "worker_ips": []}
    config["auth"] = {"ssh_user": "root", "ssh_private_key": str(folder / "key")}
    environment = config["initialization_commands"][0].replace("/mnt/study", f"{folder}/storage")
    config["initialization_commands"][0] = environment.replace(
        "export RAY_AUTH_MODE", "export HF_HUB_OFFLINE=1\nexport RAY_AUTH_MODE"
    )
    config["setup_commands"] = [f"ln -sfn {ROOT}/.venv ~/study/.venv"]
    yaml.dump(config, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
