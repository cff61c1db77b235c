#!/bin/bash
echo "This needs a label that lacks its module: Bazel was to skip it."
exit 1
