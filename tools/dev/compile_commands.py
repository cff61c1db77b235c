#!/usr/bin/env python3
"""Writes compile_commands.json for clangd from Bazel's own action graph.

Run it as:  ./bazelw run //tools/dev:compile_commands [-- --config=cuda]
It analyzes but does not build; generated headers and bazel-<folder>/external exist
after the first build.
"""

import json
import os
import subprocess
import sys


def main() -> None:
    root = os.environ.get("BUILD_WORKSPACE_DIRECTORY", os.getcwd())
    query = 'mnemonic("CppCompile|CudaCompile", //...)'
    bazel = os.path.join(root, "bazelw")
    aquery = subprocess.run(
        [bazel, "aquery", "--output=jsonproto", "--keep_going", *sys.argv[1:], query],
        cwd=root,
        capture_output=True,
        check=False,
    )
    if not aquery.stdout:
        sys.exit(aquery.stderr.decode())
    # bazel-<folder>/ is a link to the execution root, where external/ is.
    execroot = "bazel-" + os.path.basename(root)
    commands = {}
    for action in json.loads(aquery.stdout)["actions"]:
        args = action["arguments"]
        if "-c" not in args:
            continue
        source = args[args.index("-c") + 1].replace("/proc/self/cwd/", "")
        if source.startswith(("external/", "bazel-")):
            continue
        args = [a.replace("/proc/self/cwd/", "") for a in args]
        args = [
            a.replace("external/", execroot + "/external/", 1)
            if a.startswith(("external/", "-Iexternal/")) else a
            for a in args
        ]
        if action["mnemonic"] == "CudaCompile":
            # clangd reads .cu files as Clang's CUDA, with Clang's flags.
            keep = [a for a in args if a.startswith(("-I", "-D", "-std="))]
            system = [args[i + 1] for i, a in enumerate(args) if a == "-isystem"]
            args = ["clang++", "-xcuda", "--cuda-path=" + execroot + "/external/cuda",
                    "--cuda-gpu-arch=sm_80", "-nocudalib", "-Wno-unknown-cuda-version",
                    *keep, *("-isystem" + s for s in system), "-c", source]
        commands[source] = {"directory": root, "file": source, "arguments": args}
    path = os.path.join(root, "compile_commands.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump([commands[k] for k in sorted(commands)], f, indent=1)
    print(f"{path}: {len(commands)} files")


if __name__ == "__main__":
    main()
