"""The script that slurmd runs around a hook. Pure.

It stands between slurmd and a Python that may be gone: whatever goes wrong, it says so in syslog
and lets the job run. POSIX sh, for the shell of a node is anybody's guess.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from preflight import __version__
from preflight.slurm.node_check import KEPT

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

SETTING: Mapping[str, str] = {
    "prolog": "Prolog",
    "task-prolog": "TaskProlog",
    "healthcheck": "HealthCheckProgram",
    "epilog": "Epilog",
}
"""The hooks, each with the line of slurm.conf that names its script."""

ENDS: Mapping[str, str] = {
    "prolog": """# 3 and nothing else: this node must not run the job, and its reason is set
if [ "$code" = 3 ]; then exit 1; fi
""",
    "healthcheck": "# slurmd does nothing with an exit code: preflight has drained or not\n",
    "epilog": "# what a job left behind is in syslog; it is no reason to drain\n",
}

AS_ROOT = """#!/bin/sh
# {setting} of SLURM: written by `preflight slurm snippet {hook}`, preflight {version}.
# In slurm.conf: {setting}=/etc/slurm/preflight-{hook}.sh   (mode 0755, root's)
umask 022
cd / || exit 0
PATH={path}
export PATH
{conf}folder={folder}
[ -d "$folder" ] || mkdir -m 0755 "$folder" 2>/dev/null
case ${{SLURM_JOB_ID:-}} in
'' | *[!0-9]*) job=none ;;
*) job=$SLURM_JOB_ID ;;
esac
# never into slurmd's own pipe: it waits until everybody has let go of that
log=/dev/null
if [ -w "$folder" ]; then log=$folder/{hook}-$job.log; fi
timeout -k 1 7 env -i "PATH=$PATH" LANG=C.UTF-8 \\
{variables}    {python} -I -m preflight slurm {hook} </dev/null >"$log" 2>&1
code=$?
case $code in
0 | 3) ;;
*) timeout 1 logger -t preflight -p daemon.warning -- \\
    "{hook}: no verdict, exit code $code, see $log" </dev/null >/dev/null 2>&1 ;;
esac
if [ -f "$log" ] && [ ! -s "$log" ]; then rm -f "$log"; fi
{end}exit 0
"""

AS_USER = """#!/bin/sh
# {setting} of SLURM: written by `preflight slurm snippet {hook}`, preflight {version}.
# In slurm.conf: {setting}=/etc/slurm/preflight-{hook}.sh   (mode 0755)
# One task a node says it for all of them; what it prints goes into the job's output.
if [ "${{SLURM_LOCALID:-0}}" = 0 ]; then
    timeout -k 1 7 {python} -I -m preflight slurm {hook} </dev/null 2>/dev/null
fi
exit 0
"""


def script(hook: str, python: str, folder: str, slurm_conf: str = "") -> str:
    """The script of a hook. `python` is the interpreter that has preflight, `folder` where the
    hooks keep things, `slurm_conf` where scontrol finds its cluster, for those that slurmd does not
    tell."""
    if hook == "task-prolog":
        template, end = AS_USER, ""
    else:
        template, end = AS_ROOT, ENDS[hook]
    return template.format(
        setting=SETTING[hook],
        hook=hook,
        version=__version__,
        path=PATH,
        folder=folder,
        python=shlex.quote(python),
        variables="".join(_passed(name) for name in KEPT if name != "PATH"),
        conf=f'[ -n "${{SLURM_CONF:-}}" ] || SLURM_CONF={shlex.quote(slurm_conf)}\n'
        * bool(slurm_conf),
        end=end,
    )


def _passed(name: str) -> str:
    """A variable as a word of env(1), where it is set."""
    return f'    ${{{name}:+"{name}=${name}"}} \\\n'
