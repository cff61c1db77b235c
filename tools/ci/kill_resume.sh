#!/bin/bash
# The short form of soak.sh: SIGKILL at random moments of a run that saves after each of its 12
# steps, and the final bytes compared with those of a run that nobody disturbed.
#
#   tools/ci/kill_resume.sh                         20 kills
#   KILLS=5 tools/ci/kill_resume.sh                 fewer
#   BINARY=path/to/track1 tools/ci/kill_resume.sh   without building
set -eu
export KILLS="${KILLS:-20}" STEPS=12 EVERY=1 SIGNALS=KILL RANKS=1 MEMORY=no FLAGS=--batch_tokens=1024
exec "$(dirname "${BASH_SOURCE[0]}")/soak.sh"
