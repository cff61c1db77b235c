"""cuda_configure(): the repository @cuda, made from a CUDA toolkit found on the machine.

Places searched for the toolkit (a folder with bin/nvcc and include/cuda_runtime.h):
  1. $CUDA_HOME, then $CUDA_PATH ("none" in either: build as if there were no CUDA)
  2. /usr/local/cuda
  3. NVIDIA's Python wheels: site-packages/nvidia/cu13 of $VIRTUAL_ENV, of python3 on PATH
The libraries are searched in the toolkit, in the wheels beside it (nvidia/nccl,
nvidia/cudnn) and in the system's directories.

Everything is symlinked below the repository and declared as an input, so no
command line holds the toolkit's own path: objects in the disk cache serve every
machine with the same toolkit, wherever it is installed. Without a toolkit all
targets exist but are incompatible, and Bazel skips whatever depends on them.
"""

_PROGRAMS = ["nvcc", "nvcc.profile", "cudafe++", "fatbinary", "ptxas", "nvlink", "bin2c", "crt"]

# Target -> (SONAME of the shared library, header that proves the development files)
_LIBRARIES = {
    "cublas": ("libcublas.so.13", "cublas_v2.h"),
    "cublasLt": ("libcublasLt.so.13", "cublasLt.h"),
    "cudart_shared": ("libcudart.so.13", "cuda_runtime.h"),
    "cudnn": ("libcudnn.so.9", "cudnn.h"),
    "nccl": ("libnccl.so.2", "nccl.h"),
}

def _first_existing(rctx, dirs, name):
    for d in dirs:
        path = rctx.path(d + "/" + name)
        if path.exists:
            return path
    return None

def _is_toolkit(rctx, root):
    return rctx.path(root + "/bin/nvcc").exists and rctx.path(root + "/include/cuda_runtime.h").exists

def _wheel_roots(rctx):
    pythons = []
    venv = rctx.os.environ.get("VIRTUAL_ENV", "")
    if venv:
        pythons.append(venv + "/bin/python3")
    python = rctx.which("python3")
    if python:
        pythons.append(str(python))
    roots = []
    for python in pythons:
        if not rctx.path(python).exists:
            continue
        result = rctx.execute([python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"])
        if result.return_code == 0:
            roots.append(result.stdout.strip() + "/nvidia/cu13")
    return roots

def _find_toolkit(rctx):
    variables = ["CUDA_HOME", "CUDA_PATH"]
    for variable in variables:
        if rctx.os.environ.get(variable, "") == "none":
            return None, "CUDA_is_off_because_%s_is_none" % variable
    for variable in variables:
        root = rctx.os.environ.get(variable, "")
        if root:
            if not _is_toolkit(rctx, root):
                return None, "no_nvcc_or_headers_at_" + variable
            return root, None
    for root in ["/usr/local/cuda"] + _wheel_roots(rctx):
        if _is_toolkit(rctx, root):
            return root, None
    return None, "no_CUDA_toolkit_found_set_CUDA_HOME"

_HEADER = """package(default_visibility = ["//visibility:public"])

constraint_setting(name = "availability")
"""

def _absent(names, marker):
    """Targets that Bazel skips; an explicit request fails and shows the marker's name."""
    lines = ["", "constraint_value(name = \"%s\", constraint_setting = \":availability\")" % marker]
    for name in names:
        lines.append("cc_library(name = \"%s\", target_compatible_with = [\":%s\"])" % (name, marker))
    return "\n".join(lines + [""])

def _write_absent_repository(rctx, marker):
    names = ["cccl", "cuda_headers", "cudart"]
    for name in _LIBRARIES:
        names += [name, name + "_headers"]
    rctx.file("no_nvcc.sh", "#!/bin/sh\necho 'no CUDA toolkit was found' >&2; exit 1\n", executable = True)
    rctx.file("BUILD.bazel", _HEADER + _absent(sorted(names), marker) + """
filegroup(name = "nvcc", srcs = ["no_nvcc.sh"])
filegroup(name = "toolkit")
""")
    rctx.file("defs.bzl", """CUDA_AVAILABLE = False
CUDA_COMPATIBLE = ["@cuda//:%s"]
NVCC_RELEASE = ""
""" % marker)

def _cuda_configure_impl(rctx):
    rctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % rctx.name)
    root, why_not = _find_toolkit(rctx)
    if root == None:
        _write_absent_repository(rctx, why_not)
        return

    for program in _PROGRAMS:
        if rctx.path(root + "/bin/" + program).exists:
            rctx.symlink(root + "/bin/" + program, "bin/" + program)
    rctx.symlink(root + "/nvvm/bin/cicc", "nvvm/bin/cicc")
    rctx.symlink(root + "/nvvm/libdevice", "nvvm/libdevice")
    rctx.symlink(root + "/include", "include")

    wheels = root + "/.."
    lib_dirs = [
        root + "/lib64",
        root + "/lib",
        root + "/targets/x86_64-linux/lib",
        wheels + "/nccl/lib",
        wheels + "/cudnn/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
    ]
    include_dirs = {
        "include": root + "/include",
        "nccl_include": wheels + "/nccl/include",
        "cudnn_include": wheels + "/cudnn/include",
        "/usr/include": "/usr/include",
    }
    build = [_HEADER, """
filegroup(name = "nvcc", srcs = ["bin/nvcc"])

# What one nvcc run reads, headers aside.
filegroup(
    name = "toolkit",
    srcs = glob(["bin/**", "nvvm/**"]),
)

# The toolkit's C headers. CCCL (Thrust, CUB, libcu++: most of the files) is apart.
cc_library(
    name = "cuda_headers",
    hdrs = glob(["include/**"], exclude = ["include/cccl/**"]),
    includes = ["include"],
)

cc_library(
    name = "cccl",
    hdrs = glob(["include/cccl/**"]),
    includes = ["include/cccl"],
    deps = [":cuda_headers"],
)
"""]

    static = _first_existing(rctx, lib_dirs, "libcudart_static.a")
    if static:
        rctx.symlink(static, "lib/libcudart_static.a")
        build.append("""
# Static: the binary needs only the driver's libcuda.so.1, and that only when it uses a GPU.
cc_library(
    name = "cudart",
    srcs = ["lib/libcudart_static.a"],
    linkopts = ["-ldl", "-lpthread", "-lrt"],
    deps = [":cuda_headers"],
)
""")
    else:
        build.append(_absent(["cudart"], "libcudart_static_not_in_CUDA_toolkit"))

    for name, (soname, header) in sorted(_LIBRARIES.items()):
        library = _first_existing(rctx, lib_dirs, soname)
        include = None
        for link, d in include_dirs.items():
            if rctx.path(d + "/" + header).exists:
                include = (link, d)
                break
        if library == None or include == None:
            build.append(_absent([name, name + "_headers"], "%s_or_%s_not_found" % (soname, header)))
            continue
        rctx.symlink(library, "lib/" + soname)
        attrs = ""
        if include[0] not in ["include", "/usr/include"]:
            rctx.symlink(include[1], include[0])
            attrs = "    hdrs = glob([\"%s/**\"]),\n    includes = [\"%s\"],\n" % (include[0], include[0])
        build.append("""
cc_library(
    name = "{name}_headers",
{attrs}    deps = [":cuda_headers"],
)

cc_library(
    name = "{name}",
    srcs = ["lib/{soname}"],
    deps = [":{name}_headers"],
)
""".format(name = name, soname = soname, attrs = attrs))

    version = rctx.execute([root + "/bin/nvcc", "--version"]).stdout
    release = [w for w in version.replace(",", " ").split("\n") if "release" in w]
    rctx.file("BUILD.bazel", "\n".join(build))
    rctx.file("defs.bzl", """CUDA_AVAILABLE = True
CUDA_COMPATIBLE = []
NVCC_RELEASE = "%s"
""" % (release[0] if release else "?"))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    configure = True,
    environ = ["CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "PATH"],
    local = True,
)
