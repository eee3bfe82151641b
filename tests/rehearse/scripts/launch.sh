#!/bin/bash
# Starts ranks on this machine as mpirun does, without torchrun: launch.sh RANKS PORT COMMAND…
# The first that fails ends the others.
export WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$2 OMP_NUM_THREADS=1
shift 2
trap 'kill $(jobs -p); exit 143' TERM
for ((rank = 0; rank < WORLD_SIZE; rank++)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
done
for ((rank = 0; rank < WORLD_SIZE; rank++)); do
  wait -n || {
    status=$?
    kill $(jobs -p) 2>/dev/null
    wait
    exit $status
  }
done
