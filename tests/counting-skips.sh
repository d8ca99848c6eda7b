#!/usr/bin/env bash
# Runs a command of tests, then says which of them were skipped for lack of a real part.
set -uo pipefail

skips=$(mktemp)
trap 'rm -f "$skips"' EXIT
STEER_SKIPS_FILE=$skips "$@"
status=$?

if [ -s "$skips" ]; then
  count=$(wc -l <"$skips")
  echo
  echo "$count test(s) skipped for lack of real parts (cargo xtask parts install gets them):"
  sort "$skips" | sed 's/^/  /'
fi
exit "$status"
