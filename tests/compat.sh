#!/usr/bin/env bash
# Runs the compatibility suite against a fresh `steer up`.
#
#   tests/compat.sh STEER SUITE AREAS
#
# STEER is the binary, SUITE the folder with compat.py, AREAS what to run, as a regular
# expression such as 'crud|watch'. Without the suite there is nothing to do.
set -euo pipefail

steer=$(realpath "$1")
suite=$2
areas=$3

if [ ! -f "$suite/compat.py" ]; then
  echo "compat: skipped, COMPAT_SUITE names no folder with compat.py: \"$suite\""
  exit 0
fi
parts=${STEER_PARTS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/steersman/parts}
python=$parts/python/bin/python3
if [ ! -x "$python" ]; then
  echo "compat: no Python with the Kubernetes client; run: cargo xtask parts install python" >&2
  exit 1
fi

folder=$(mktemp -d)
"$steer" up --data-dir "$folder/state" --api-port 0 --http-port 0 --metrics-port 0 >"$folder/log" 2>&1 &
server=$!
# Not SIGINT: a shell makes its background processes deaf to it.
stop() {
  kill -TERM "$server" 2>/dev/null || true
  for _ in $(seq 200); do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  if kill -KILL "$server" 2>/dev/null; then
    echo "compat: steer up did not stop within 20 s and was killed" >&2
  fi
  wait "$server" 2>/dev/null || true
  rm -rf "$folder"
}
trap stop EXIT

for _ in $(seq 300); do
  [ -s "$folder/state/kubeconfig" ] && break
  if ! kill -0 "$server" 2>/dev/null; then
    echo "compat: steer up ended:" >&2
    cat "$folder/log" >&2
    exit 1
  fi
  sleep 0.1
done
if [ ! -s "$folder/state/kubeconfig" ]; then
  echo "compat: steer up wrote no kubeconfig within 30 s:" >&2
  cat "$folder/log" >&2
  exit 1
fi

if ! "$python" "$suite/compat.py" --kubeconfig "$folder/state/kubeconfig" \
  --tier core --only "^($areas)/" --jobs 4 --scale "${COMPAT_SCALE:-2}"; then
  echo "compat: the end of steer up's log:" >&2
  tail -n 20 "$folder/log" >&2
  exit 1
fi
