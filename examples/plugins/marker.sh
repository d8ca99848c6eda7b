#!/bin/sh
# A plugin in shell: each resource is a marker, a file named after its uid.
#
# Settings: folder   where the markers are
#
# It needs nothing but a POSIX shell. docs/plugins.md is the contract; what makes it easy to
# read for a shell is that requests begin with {"id":N,"method":"M" and that the fields of a
# task come in a fixed order, the free-form ones last.
set -u

folder=

# The first text of this name in the request.
text() {
    rest=${line#*\"$1\":\"}
    [ "$rest" = "$line" ] || printf '%s' "${rest%%\"*}"
}

answer() { printf '{"id":%s,"result":%s}\n' "$id" "$1"; }
refuse() { printf '{"id":%s,"error":{"kind":"%s","message":"%s"}}\n' "$id" "$1" "$2"; }

while IFS= read -r line; do
    rest=${line#'{"id":'}
    id=${rest%%,*}
    rest=${line#*\"method\":\"}
    method=${rest%%\"*}
    marker=$folder/$(text uid)
    case $method in
    Describe)
        answer '{"contract":"1.0","name":"marker","version":"1.0.0","capabilities":["detect_drift"]}'
        ;;
    Configure)
        folder=$(text folder)
        answer '{}'
        ;;
    Validate)
        if [ -n "$folder" ]; then
            answer '{}'
        else
            refuse permanent 'the setting folder is missing; put it beside command in PLUGIN_CONFIGS'
        fi
        ;;
    Apply | Resume)
        if [ "$(text operation)" = destroy ]; then
            rm -f "$marker" && answer '{"state":"done","text":"removed"}'
        elif mkdir -p "$folder" && : >"$marker"; then
            answer '{"state":"done","text":"marked","changes":{"created":1},"outputs":{"marker":"'"$marker"'"}}'
        else
            refuse transient "$folder cannot be written"
        fi
        ;;
    Destroy)
        rm -f "$marker" && answer '{"state":"done","text":"removed","changes":{"deleted":1}}'
        ;;
    DetectDrift)
        if [ -e "$marker" ]; then
            answer '{"drift":"none"}'
        else
            answer '{"drift":"found","what":"the marker is gone"}'
        fi
        ;;
    *)
        refuse unsupported "$method"
        ;;
    esac
done
