"""A batch script as a job: what stays, what gives way, and what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from prefect_dispatch.cli.job_file import read_job, script_notes
from prefect_dispatch.errors import SpecError
from prefect_dispatch.schedulers.slurm.adopted_script import MOST_BYTES, ScriptFault, adopt

SCRIPT = """#!/bin/bash -l
#SBATCH --job-name=train
#SBATCH -p gpu -A lab   # where it runs
#SBATCH --nodes=2 --ntasks-per-node 4
#SBATCH -c 8 --mem=16G
#SBATCH --gpus-per-node=a100:4
#SBATCH -t 1-12
#SBATCH --constraint="ib&a100"
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --output=train-%j.log
##SBATCH --array=1-9

set -e
module load cuda
#SBATCH --time=1
srun python train.py "$0"
"""


def job(folder: Path, script: str = SCRIPT, **fields: object) -> Path:
    (folder / "train.sbatch").write_text(script)
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({"lineage": "digits", "script": "train.sbatch", "store": {"root": "r"}, **fields}))
    return path


def test_a_script_is_a_job_with_the_options_of_its_own_lines(tmp_path: Path) -> None:
    spec = read_job(job(tmp_path))

    assert spec.command == ("/bin/bash", "-l", "-c", SCRIPT, "train.sbatch")
    resources = spec.resources
    assert (resources.nodes, resources.tasks_per_node, resources.cpus, resources.memory) == (2, 4, 8, 16 * 1024**3)
    assert resources.time_limit is not None and resources.time_limit.total_seconds() == 36 * 3600
    assert resources.options == {
        "partition": "gpu",
        "account": "lab",
        "gres": "gpu:a100:4",
        "constraint": "ib&a100",
        "exclusive": "true",
    }


def test_what_gives_way_is_told_and_the_job_wins_over_its_script(tmp_path: Path) -> None:
    path = job(tmp_path, resources={"nodes": 1, "options": {"partition": "low"}})

    assert read_job(path).resources.nodes == 1
    assert read_job(path).resources.options["partition"] == "low"
    assert read_job(path).resources.options["account"] == "lab"
    told = "\n".join(script_notes(path))
    for what in ("job-name gives way", "requeue gives way", "output train-%j.log gives way", "nodes 2 gives way to"):
        assert f"script train.sbatch: {what}" in told
    assert "partition gpu gives way to the spec's low" in told


def test_a_log_and_a_folder_of_the_scripts_own_are_the_jobs(tmp_path: Path) -> None:
    spec = read_job(job(tmp_path, "#!/bin/sh\n#SBATCH -o out.log -D work\n#SBATCH -n1\ntrue\n"))

    assert (spec.log, spec.workdir) == ("out.log", str(tmp_path / "work"))
    assert spec.resources.tasks_per_node == 1


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("#SBATCH --array=1-10", "array contradicts: one job is one object"),
        ("#SBATCH -a 1-10", "array contradicts"),
        ("#SBATCH --wait", "wait contradicts"),
        ("#SBATCH -H", "hold contradicts"),
        ("#SBATCH --signal=B:USR1@60", "signal contradicts: write warning_signal"),
        ("#SBATCH --export=NONE", "export=NONE contradicts"),
        ("#SBATCH -N 1-4", "nodes is '1-4'; write one number"),
        ("#SBATCH -n 8", "ntasks is 8; write nodes and ntasks-per-node"),
        ("#SBATCH -N 2 -n 8 --ntasks-per-node=3", "contradict one another"),
        ("#SBATCH --mem=0", "mem is '0'"),
        ("#SBATCH --time=soon", "time: 'soon' is no time limit"),
        ("#SBATCH --partition", "has no value for --partition"),
        ("#SBATCH 'x", "cannot be read"),
        ("#SBATCH gpu", "'gpu', which is no option"),
    ],
)
def test_what_contradicts_is_refused_with_what_to_do(tmp_path: Path, lines: str, why: str) -> None:
    with pytest.raises(SpecError, match=r"script 'train\.sbatch': ") as refused:
        read_job(job(tmp_path, f"#!/bin/bash\n{lines}\nsrun true\n"))
    assert why in str(refused.value)


def test_tasks_over_nodes_are_the_same_number_on_each() -> None:
    assert adopt("#!/bin/bash\n#SBATCH -N2 -n 8\n", "s").fields["resources"] == {"nodes": 2, "tasks_per_node": 4}


@pytest.mark.parametrize("text", ["echo\n", "#!/usr/bin/env python3\n", "#!/bin/bash\n" + "#" * MOST_BYTES])
def test_what_is_no_script_of_a_shells_is_refused(text: str) -> None:
    with pytest.raises(ScriptFault):
        adopt(text, "s")


def test_a_script_that_is_not_there_or_beside_a_command_is_refused(tmp_path: Path) -> None:
    path = job(tmp_path, command=["true"])
    with pytest.raises(SpecError, match="take one out"):
        read_job(path)
    path = job(tmp_path)
    (tmp_path / "train.sbatch").unlink()
    with pytest.raises(SpecError, match="cannot be read"):
        read_job(path)
