#!/bin/sh
# Installs the Debian packages whose commands the tests miss, where that is allowed: as root, with
# apt-get. Elsewhere, and where it fails, the tests that need them say so by name.
set -eu

missing=""
need() { # package, commands…
    package=$1
    shift
    for command in "$@"; do
        command -v "$command" >/dev/null 2>&1 || { missing="$missing $package"; return 0; }
    done
}

need util-linux unshare nsenter setpriv
need mount mount umount
need iproute2 ip
need nftables nft
need "gcc libc6-dev" gcc
need slurmctld slurmctld
need slurmd slurmd
need slurm-client srun scontrol sbatch
need munge munged
need openssh-server sshd
need openssh-client ssh ssh-keygen
need openmpi-bin mpirun.openmpi
need podman podman
need crun crun
need conmon conmon
need buildah buildah
need chromium chromium

[ -n "$missing" ] || exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || exit 0
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # one word a package
install() { timeout 300 apt-get install -qq -y --no-install-recommends $missing >/dev/null 2>&1; }
echo "apt-get install$missing"
install || { timeout 300 apt-get update -qq >/dev/null 2>&1 && install; } ||
    echo "not installed:$missing; the tests that need them will say so" >&2
