#!/bin/bash
# Does a node have power?  Prints "on" or "off", as a site's power controller would.
#   power.sh [-d DIR] NODE
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
load_cluster "$@"; set -- "${ARGS[@]}"
need_node "${1:-}"
if node_pid "$1" >/dev/null; then echo on; else echo off; fi
