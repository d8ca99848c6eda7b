#!/usr/bin/env bash
# Runs `cargo test` with the arguments given, then says which tests were skipped for lack of a
# real part. Tests that failed are run once more, without the others beside them: one that passes
# then is named as unstable and does not fail the run. After a crash or more than a handful of
# failures nothing is run again.
set -uo pipefail

read -ra cargo <<<"${CARGO:-cargo}"
max_again=5
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
log=$folder/log
failed=$folder/failed
export STEER_SKIPS_FILE=$folder/skips

"${cargo[@]}" test --no-fail-fast "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

# Cargo says after each program of tests how to run it again; the tests that failed are named
# before. A program that failed without naming one has crashed, and counts as `?`.
awk '
  /^test .* \.\.\. FAILED/ {
    sub(/^test /, ""); sub(/( - should panic)? \.\.\. FAILED.*/, "")
    names[$0] = 1
  }
  /^error: (test|doctest) failed, to rerun pass `/ {
    split($0, part, "`"); target = part[2]; sub(/^-p [^ ]+ ?/, "", target)
    if (length(names) == 0) print target "\t?"
    for (name in names) print target "\t" name
    delete names
  }' "$log" >"$failed"

unstable=()
again=$(wc -l <"$failed")
if [ "$status" -ne 0 ] && [ "$again" -gt 0 ] && [ "$again" -le "$max_again" ] && ! grep -q '?$' "$failed"; then
  status=0
  while IFS=$'\t' read -r target name <&3; do
    echo
    echo "again, alone: $name"
    # The whole workspace is named, so that nothing is built with other features than before.
    # shellcheck disable=SC2086
    if "${cargo[@]}" test --workspace $target -- --exact "$name"; then
      unstable+=("$name")
    else
      status=101
    fi
  done 3<"$failed"
fi

if [ -s "$STEER_SKIPS_FILE" ]; then
  echo
  echo "$(wc -l <"$STEER_SKIPS_FILE") test(s) skipped for lack of real parts (cargo xtask parts install gets them):"
  sort "$STEER_SKIPS_FILE" | sed 's/^/  /'
fi
if [ "${#unstable[@]}" -gt 0 ]; then
  echo
  echo "UNSTABLE: ${#unstable[@]} test(s) failed among the others and passed alone; please report them:"
  printf '  %s\n' "${unstable[@]}"
fi
exit "$status"
