#!/bin/bash
# Two agents of one job on this machine, the second one so many seconds after the first:
# agents.sh SECONDS PORT TORCHRUN SCRIPT …
seconds=$1 port=$2 torchrun=$3
agent=("$torchrun" --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-id=late
  --rdzv-endpoint="127.0.0.1:$port" "${@:4}")
"${agent[@]}" &
first=$!
sleep "$seconds"
"${agent[@]}"
code=$?
wait "$first" && exit "$code"
