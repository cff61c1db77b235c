#!/bin/bash
# Starts race.py, which lies beside this file or among its runfiles.
here="$(dirname "${BASH_SOURCE[0]}")"
if [[ ! -f "$here/race.py" ]]; then
  here="$0.runfiles/nanospeed/tools/race"
  export RUNFILES_DIR="${RUNFILES_DIR:-$(realpath "$0.runfiles")}"  # for the programs that it runs
fi
exec python3 "$here/race.py" "$@"
