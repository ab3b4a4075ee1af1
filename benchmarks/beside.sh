#!/usr/bin/env bash
# Benchmarks beside each other on one accelerator, on a machine that is only reached by short calls.
#
#   benchmarks/beside.sh begin FOLDER SECONDS COMMAND…    each a line of its own, as "benchmarks/fleets.py --out FOLDER/pool …"
#   benchmarks/beside.sh wait FOLDER SECONDS OUT          until all have ended, or for so long; OUT has what there is by then
#
# What is begun outlives the call that began it. After SECONDS each command is interrupted as by Ctrl-C, so that what it has
# so far is written. Where the driver's multi-process service is there, kernels of all commands share the accelerator;
# without it they would take turns.
set -euo pipefail
does=${1:?usage: beside.sh begin|wait FOLDER SECONDS …}
folder=${2:?which folder}
seconds=${3:?how many seconds}
shift 3
logs=$folder/logs

running() {
  for process in "$logs"/*.process; do
    if kill -0 "$(cat "$process")" 2> /dev/null; then return 0; fi
  done
  return 1
}

case $does in
  begin)
    mkdir -p "$logs"
    if command -v nvidia-cuda-mps-control > /dev/null; then
      nvidia-cuda-mps-control -d > "$logs/service.log" 2>&1 || true
    fi
    export XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONUNBUFFERED=1
    number=0
    for command in "$@"; do
      number=$((number + 1))
      echo "$command" > "$logs/$number.log"
      setsid bash -c 'echo $$ > "$0"; exec timeout --signal=INT --kill-after=60 "$1" '"${PYTHON:-python3} $command" \
        "$logs/$number.process" "$seconds" >> "$logs/$number.log" 2>&1 < /dev/null &
    done
    sleep 1
    ;;
  wait)
    out=${1:?where to put what was found}
    until=$((SECONDS + seconds))
    while running && [ $SECONDS -lt $until ]; do sleep 2; done
    mkdir -p "$out"
    (cd "$folder" && find . -name '*.json' -o -name '*.unfinished' -o -name '*.tgz' -o -path './logs/*.log' | grep -v /checkpoints/ |
      tar czf - -T -) > "$out/found.tgz"
    tail -n 4 "$logs"/[0-9]*.log
    if running; then echo "still running"; else echo "all have ended"; fi
    ;;
  *)
    echo "usage: beside.sh begin|wait FOLDER SECONDS …, not $does" >&2
    exit 2
    ;;
esac
