#!/bin/bash
# run_python_test.sh TEST.py PROGRAM: so that Bazel needs no Python toolchain.
exec python3 "$@"
