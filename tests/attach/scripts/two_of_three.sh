#!/bin/bash
# Starts ranks 0 and 1 of a job of three, as a script with a wrong number would: PORT PYTHON SCRIPT
export WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$1
shift
RANK=0 "$@" &
RANK=1 "$@" &
wait
