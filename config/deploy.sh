#!/bin/sh
# Installs operators into the cluster of the current kubeconfig: deploy.sh KUBECTL IMAGE OPERATOR...
# Whatever is there already is brought up to date.
set -eu
kubectl=$1 image=$2
shift 2
config=$(cd "$(dirname "$0")" && pwd)
command -v "$kubectl" >/dev/null || {
  echo "make deploy needs kubectl, which builds config/ with kustomize; no $kubectl is in PATH" >&2
  exit 1
}

# The token that the REST API of infra asks for; one that is there stays.
rest_token() {
  "$kubectl" apply --filename "$config/infra/namespace.yaml"
  if ! "$kubectl" --namespace infra-system get secret infra-rest >/dev/null 2>&1; then
    token=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
    printf '%s' "$token" |
      "$kubectl" --namespace infra-system create secret generic infra-rest --from-file token=/dev/stdin
  fi
}

for operator in "$@"; do
  case $operator in
    webapp) package=default ;;
    infra) package=infra; rest_token ;;
    observatory | elasti) package=$operator ;;
    *) echo "there is no operator $operator; there are webapp, observatory, infra and elasti" >&2; exit 2 ;;
  esac
  "$kubectl" kustomize "$config/$package" |
    sed "s|image: steersman.io/steer:latest|image: $image|" |
    "$kubectl" apply --filename -
done
