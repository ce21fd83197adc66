"""What every client's job runs on each of its hosts: a line for the log, a file for the model."""

import json
import pathlib

config = json.loads(pathlib.Path("/opt/ml/input/config/resourceconfig.json").read_text())
host, group = config["current_host"], config["current_group_name"]
print(f"{host} trains in {group}", flush=True)
pathlib.Path(f"/opt/ml/model/{group}-{host}.txt").write_text(f"weights of {group}")
