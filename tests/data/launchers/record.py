"""Write down what a launcher gives to this process: run it as the launcher's program.

    srun -n 4 python tests/data/launchers/record.py FOLDER

writes FOLDER/<pid>@<host>.env: what launchers set, without paths, addresses of daemons and keys.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

# what any launcher sets or goes by
OURS = re.compile(
    r"(RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|NODE_RANK|MASTER_|TORCHELASTIC_|PET_|SLURM|OMPI_COMM_|"
    r"OMPI_UNIVERSE_SIZE|PMIX_|PMI_|MPI_LOCAL|HYDI_|MPIR_CVAR_|ACCELERATE_|LIGHTNING_|PL_|RAY_|"
    r"JOB_COMPLETION_INDEX|CUDA_VISIBLE_DEVICES|OMP_NUM_THREADS)"
)
# paths and keys, and what is a matter of this machine alone
STRIPPED = re.compile(
    r"(PMIX_(SERVER|SECURITY|DSTORE|GDS|BFROP|MCA|SYSTEM|HOSTNAME)|SLURM_(CONF|SUBMIT_DIR|SRUN_COMM"
    r"|TASK_PID|JOB_(UID|GID|USER|ACCOUNT|START|END)|WORKING_CLUSTER|PRIO|UMASK)|.*(KEY|TOKEN|SECRET))"
)


def kept(environ: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(environ.items())
        if OURS.match(name) and not STRIPPED.match(name) and "/" not in value and "\n" not in value
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name}={value}\n" for name, value in kept(dict(os.environ)).items()]
    (folder / f"{os.getpid()}@{os.uname().nodename}.env").write_text("".join(lines))
