#!/usr/bin/env bash
# Runs the compatibility suite against a fresh `steer up`.
#
#   tests/compat.sh STEER SUITE SKIP
#
# STEER is the binary, SUITE the folder with compat.py, SKIP what not to run, as a regular
# expression such as '^rbac/'. Without the suite there is nothing to do. Every kubectl that
# KUBECTLS names, or that is found on this machine, is used.
set -euo pipefail

steer=$(realpath "$1")
suite=$2
skip=$3

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

if [ -z "${KUBECTLS:-}" ]; then
  versions=,
  for kubectl in "$parts"/kubectl/usr/bin/kubectl "$parts"/kubernetes-*/bin/kubectl \
    "$(command -v kubectl || true)" /usr/lib/google-cloud-sdk/bin/kubectl.1.*; do
    [ -x "$kubectl" ] || continue
    version=$("$kubectl" version --client --output=json | sed -n 's/.*"gitVersion": "v\([0-9]*\.[0-9]*\).*/\1/p' | head -n 1)
    # One of each version.
    case $versions in *",$version,"*) continue ;; esac
    versions=$versions$version,
    KUBECTLS=${KUBECTLS:+$KUBECTLS,}$kubectl
  done
  export KUBECTLS=${KUBECTLS:-}
fi

folder=$(mktemp -d)
# Without a scheduler: the suite binds pods itself, and would race with one.
"$steer" up --data-dir "$folder/state" --api-port 0 --http-port 0 --metrics-port 0 --scheduler none \
  >"$folder/log" 2>&1 &
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
  --skip "$skip" --jobs 4 --scale "${COMPAT_SCALE:-2}"; then
  echo "compat: the end of steer up's log:" >&2
  tail -n 20 "$folder/log" >&2
  exit 1
fi
