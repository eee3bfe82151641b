#!/bin/sh
# One node of two, with an image of the target `full`: preflight becomes torchrun when both are READY.
#   NODES=2 NODE_RANK=0 MASTER_ADDR=gpu1 docker/run.sh IMAGE train.py      on gpu1
#   NODES=2 NODE_RANK=1 MASTER_ADDR=gpu1 docker/run.sh IMAGE train.py      on gpu2
set -eu

image=$1
shift

# torchrun reads the PET_ variables in the place of flags, and preflight reads them, too
set -- \
    --env PET_NNODES="${NODES:-1}" --env PET_NODE_RANK="${NODE_RANK:-0}" \
    --env PET_NPROC_PER_NODE="${NPROC:-8}" \
    --env PET_MASTER_ADDR="${MASTER_ADDR:-127.0.0.1}" --env PET_MASTER_PORT="${MASTER_PORT:-29500}" \
    "$image" torchrun "$@"

# what a container does not have of itself and a job needs: the GPUs, the host's network, shared
# memory for DataLoader workers and NCCL, open files, and for InfiniBand its devices and locked memory
if [ -d /dev/infiniband ]; then
    set -- --device /dev/infiniband --ulimit memlock=-1 "$@"
fi
exec "${DOCKER:-docker}" run --rm --gpus all --network host --shm-size 8g --ulimit nofile=1048576 "$@"
