#!/bin/sh
# Deletes operators from the cluster of the current kubeconfig: undeploy.sh KUBECTL OPERATOR...
# Resource definitions stay, and with them the custom resources; `make uninstall` deletes those.
set -eu
kubectl=$1
shift
config=$(cd "$(dirname "$0")" && pwd)
command -v "$kubectl" >/dev/null || {
  echo "make undeploy needs kubectl, which builds config/ with kustomize; no $kubectl is in PATH" >&2
  exit 1
}

for operator in "$@"; do
  case $operator in
    webapp) package=default ;;
    observatory | infra | elasti) package=$operator ;;
    *) echo "there is no operator $operator; there are webapp, observatory, infra and elasti" >&2; exit 2 ;;
  esac
  # Written by the operator itself. While they are there and nobody answers, writes are refused.
  "$kubectl" delete --ignore-not-found \
    validatingwebhookconfiguration,mutatingwebhookconfiguration "$operator"
  "$kubectl" kustomize "$config/$package" |
    awk 'BEGIN { RS = "---\n"; ORS = "---\n" } !/(^|\n)kind: CustomResourceDefinition\n/' |
    "$kubectl" delete --ignore-not-found --filename -
done
