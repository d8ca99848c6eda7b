#!/usr/bin/env bash
# What a new user does, with a real kubectl.
#
#   KUBECONFIG=… tests/kubectl.sh KUBECTL STEER
#
# KUBECTL is a kubectl of any version, STEER the binary. KUBECONFIG is that of a running `steer up`,
# or of a cluster with our node (--publish-services) and the WebApp operator. Everything happens in
# a namespace of its own, which is gone afterwards.
set -euo pipefail

kubectl=$1
steer=$2
: "${KUBECONFIG:?names the kubeconfig of a running steer up, or of a cluster with our node}"
root=$(cd "$(dirname "$0")/.." && pwd)
sample=$root/config/samples/example_v1_webapp.yaml
seconds=${PATIENCE:-120}
# One run of kubectl is never waited for longer than this, whatever it waits for itself.
limit=$((seconds + 30))

namespace=story-$$-$RANDOM
scratch=$(mktemp -d)
step="setting up"

fail() {
  echo "FAILED while $step: $*" >&2
  {
    echo "--- objects"
    k get webapps,deployments,replicasets,pods,services,endpointslices -o wide || true
    echo "--- events"
    k get events || true
  } >&2 2>&1
  exit 1
}

# kubectl in the story's namespace. Its cache of discovery is per version: what one version
# caches another may misread.
k() {
  timeout "$limit" "$kubectl" --cache-dir "$scratch/cache" --namespace "$namespace" "$@" </dev/null
}

# The output of a command that must succeed, in $output.
must() {
  if ! output=$("$@" 2>&1); then
    fail "$* said: $output"
  fi
}

# A condition that must come true in time: a function that prints why it is not true yet.
eventually() {
  local end=$((SECONDS + seconds)) why
  until why=$("$@" 2>&1); do
    [ "$SECONDS" -lt "$end" ] || fail "not true after $seconds s: $* ($why)"
    sleep 0.2
  done
}

expect() {
  local text=$1
  shift
  case "$output" in
    *"$text"*) ;;
    *) fail "expected \"$text\" $*, got: $output" ;;
  esac
}

cleanup() {
  k delete namespace "$namespace" --ignore-not-found --wait=false >/dev/null 2>&1 || true
  rm -rf "$scratch"
}
trap cleanup EXIT

begin() {
  step=$1
  echo "- $step"
}

# The body of an HTTP GET, with curl where it is there.
fetch() {
  local address=${1#http://}
  if command -v curl >/dev/null; then
    curl --silent --show-error --fail --max-time 10 "http://$address"
    return
  fi
  address=${address%/}
  exec 3<>"/dev/tcp/${address%:*}/${address##*:}" || return 1
  printf 'GET / HTTP/1.0\r\nHost: %s\r\n\r\n' "$address" >&3
  timeout 10 cat <&3
  exec 3>&-
}

jsonpath() {
  k get "$1" -o "jsonpath=$2"
}

version=$("$kubectl" version --client 2>/dev/null | grep -o 'v1\.[0-9]*\.[0-9]*' | head -n 1)
echo "kubectl ${version:-of unknown version} in namespace $namespace"

begin "creating a namespace"
must k create namespace "$namespace"

begin "applying the sample"
must k apply -f "$sample"
expect created "after the first apply"
must k apply -f "$sample"
expect unchanged "after the second apply"
must k get -f "$sample" -o name
webapp=$output
expect webapp.example.com/ "as the name of what was applied"
name=${webapp#*/}
replicas=$(jsonpath "$webapp" '{.spec.replicas}')

begin "waiting until $webapp is available"
must k wait --for=condition=Available "$webapp" "--timeout=${seconds}s"
must k rollout status "deployment/$name" "--timeout=${seconds}s"
expect "successfully rolled out" "from rollout status"

begin "getting webapps, deployments, pods and services"
must k get webapps,deployments,pods,services
for kind in webapp.example.com/ deployment.apps/ pod/ service/; do
  expect "$kind$name" "in the listing"
done
must k get webapps
expect NAME "as a column"

begin "reading what the types are"
must k api-resources --api-group=example.com
expect WebApp "among the resources"
must k explain webapp.spec
expect replicas "among the fields of webapp.spec"

# Ready pods of the WebApp, by name.
ready_pods() {
  k get pods -o 'jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' |
    awk -v prefix="$name-" 'index($1, prefix) == 1 && NF == 2 && $2 == "True" { print $1 }'
}
count_is() {
  local found
  found=$(ready_pods | wc -l)
  [ "$found" -eq "$1" ] || { echo "$found pods are ready, not $1"; return 1; }
}
eventually count_is "$replicas"

begin "asking the WebApp over HTTP"
published() {
  address=$("$steer" get services "$name" --namespace "$namespace" | awk 'END { print $NF }')
  case "$address" in
    http://127.0.0.1:* | 127.0.0.1:*) echo "$address" >"$scratch/address" ;;
    *) echo "steer get services names \"$address\""; return 1 ;;
  esac
}
eventually published
address=$(cat "$scratch/address")
answers() { fetch "$address" >"$scratch/answer"; }
eventually answers
[ -s "$scratch/answer" ] || fail "the answer of $address is empty"

begin "scaling to three"
must k scale "$webapp" --replicas=3
eventually count_is 3
scaled() {
  local available
  available=$(jsonpath "$webapp" '{.status.availableReplicas}')
  [ "$available" = 3 ] || { echo "status.availableReplicas is \"$available\""; return 1; }
}
eventually scaled

begin "reading the log of a pod that answered"
pod=$(ready_pods | head -n 1)
logged() {
  # Requests go round robin: after a few of them every pod has had one.
  for _ in 1 2 3; do answers || return 1; done
  [ -n "$(k logs "$pod")" ] || { echo "the log of $pod is empty"; return 1; }
}
eventually logged
must k logs "$pod" --tail=1
must k logs "deployment/$name" --tail=1

begin "describing the WebApp"
must k describe "$webapp"
expect "$name" "in the description"
must k describe pod "$pod"
expect "$pod" "in the description"

begin "changing what belongs to the WebApp behind its back"
must k scale "deployment/$name" --replicas=2
desired_is() {
  local found
  found=$(jsonpath "deployment/$name" '{.spec.replicas}')
  [ "$found" = "$1" ] || { echo "the Deployment wants \"$found\""; return 1; }
}
eventually desired_is 3
must k delete "deployment/$name" "service/$name" "--timeout=${seconds}s"
eventually count_is 3
eventually published
address=$(cat "$scratch/address")
eventually answers

begin "rolling out a change"
must k patch "$webapp" --type=merge --patch '{"spec":{"env":[{"name":"GREETING","value":"again"}]}}'
rolled_out() {
  local found
  found=$(jsonpath "deployment/$name" '{.spec.template.spec.containers[0].env[?(@.name=="GREETING")].value}')
  [ "$found" = again ] || { echo "the Deployment has GREETING=\"$found\""; return 1; }
}
eventually rolled_out
must k rollout status "deployment/$name" "--timeout=${seconds}s"
must k wait --for=condition=Available "$webapp" "--timeout=${seconds}s"

begin "scaling down to one"
must k scale "$webapp" --replicas=1
eventually count_is 1

begin "deleting the WebApp"
must k delete "$webapp" "--timeout=${seconds}s"
expect deleted "after the delete"
gone() {
  local left
  left=$(k get webapps,deployments,replicasets,pods,services,endpointslices -o name) || return 1
  [ -z "$left" ] || { echo "left behind: $left"; return 1; }
}
eventually gone
unanswered() { ! fetch "$address" >/dev/null 2>&1; }
eventually unanswered

begin "deleting the namespace"
must k delete namespace "$namespace" "--timeout=${seconds}s"

echo "ok: kubectl ${version:-of unknown version}"
