#!/bin/sh
# One job, from inside a Ray cluster: a server of its own on this node, a pool that is this cluster, and the job's logs.
# Used by rayjob.yaml. Ends as the job ends.
set -eu
here=$(hostname -i)
export STOKER_HOME="${STOKER_HOME:-/stoker/taxi}"
stoker pools describe cluster >/dev/null 2>&1 || stoker pools add cluster --engine ray \
  --address "$here:6379" --node-home "$STOKER_HOME/nodes" --server-url "http://$here:8081"
stoker server run --host "$here" --port 8081 &
server=$!
trap 'kill "$server"' EXIT
until stoker cluster >/dev/null 2>&1; do sleep 1; done
stoker jobs submit training taxi_1 --region cluster --package-path taxifare --module-name taxifare.trainer \
  --stream-logs -- --data "$PWD/rides.csv" --epochs 3
