"""cuda_configure(): the repository @cuda, made from a CUDA toolkit found on the machine.

Places searched for the toolkit (a folder with bin/nvcc and include/cuda_runtime.h), of CUDA 12
or 13:
  1. $CUDA_HOME, then $CUDA_PATH ("none" in either: build as if there were no CUDA)
  2. /usr/local/cuda
  3. NVIDIA's Python wheels: site-packages/nvidia/cu13 of $VIRTUAL_ENV, of python3 on PATH. The
     wheels of CUDA 12 hold no nvcc, so that no toolkit can be made of them.
The libraries are searched in the toolkit, in the system's directories, and in wheels beside the
toolkit or of those Pythons (nvidia/cublas, nvidia/cuda_cccl, nvidia/nccl, nvidia/cudnn), each
with its headers.

Libraries of CUDA have its major version in their SONAME. <cuda_toolkit.h> tells the program which
one it was built with, so that it opens the same at run time.

Everything is symlinked below the repository and declared as an input, so no
command line holds the toolkit's own path: objects in the disk cache serve every
machine with the same toolkit, wherever it is installed. Without a toolkit all
targets exist but are incompatible, and Bazel skips whatever depends on them.
"""

_PROGRAMS = ["nvcc", "nvcc.profile", "cudafe++", "fatbinary", "ptxas", "nvlink", "bin2c", "crt"]

_OLDEST_MAJOR = 12

def _libraries(major):
    """Target -> (SONAME of the shared library, header that proves the development files, wheel)"""
    return {
        "cublas": ("libcublas.so.%d" % major, "cublas_v2.h", "cublas"),
        "cublasLt": ("libcublasLt.so.%d" % major, "cublasLt.h", "cublas"),
        "cudart_shared": ("libcudart.so.%d" % major, "cuda_runtime.h", "cuda_runtime"),
        "cudnn": ("libcudnn.so.9", "cudnn.h", "cudnn"),
        "nccl": ("libnccl.so.2", "nccl.h", "nccl"),
    }

# <cuda_toolkit.h>
_TOOLKIT_HEADER = """// The CUDA toolkit that the program is built with. Written by cuda_configure().
#ifndef CUDA_TOOLKIT_H_
#define CUDA_TOOLKIT_H_

namespace cuda_toolkit {{

inline constexpr char kCublasLtSoname[] = "libcublasLt.so.{major}";
// Python packages that hold the libraries.
inline constexpr char kCublasWheel[] = "{cublas_wheel}";
inline constexpr char kNcclWheel[] = "nvidia-nccl-cu{major}";

}}  // namespace cuda_toolkit

#endif  // CUDA_TOOLKIT_H_
"""

def _first_existing(rctx, dirs, name):
    for d in dirs:
        path = rctx.path(d + "/" + name)
        if path.exists:
            return path
    return None

def _is_toolkit(rctx, root):
    return rctx.path(root + "/bin/nvcc").exists and rctx.path(root + "/include/cuda_runtime.h").exists

def _major_version(rctx, root):
    """13 for CUDA 13.0, from cuda.h; 0 if it does not say."""
    header = rctx.path(root + "/include/cuda.h")
    if not header.exists:
        return 0
    for line in rctx.read(header).split("\n"):
        words = [w for w in line.split(" ") if w]
        if len(words) == 3 and words[:2] == ["#define", "CUDA_VERSION"] and words[2].isdigit():
            return int(words[2]) // 1000
    return 0

def _wheel_folders(rctx):
    """The folders "nvidia" of the Pythons' site-packages."""
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
            roots.append(result.stdout.strip() + "/nvidia")
    return roots

def _find_toolkit(rctx, wheel_folders):
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
    for root in ["/usr/local/cuda"] + [f + "/cu13" for f in wheel_folders]:
        if _is_toolkit(rctx, root):
            return root, None
    for folder in wheel_folders:
        if rctx.path(folder + "/cuda_nvcc").exists:
            return None, "wheels_of_CUDA_12_have_no_nvcc_set_CUDA_HOME_to_a_toolkit"
    return None, "no_CUDA_toolkit_found_set_CUDA_HOME"

def _find_library(rctx, root, lib_dirs, wheel_folders, soname, header, wheel):
    """The library, and the folder of its headers where these are not the toolkit's or the system's."""
    library = _first_existing(rctx, lib_dirs, soname)
    if library and _first_existing(rctx, [root + "/include", "/usr/include"], header):
        return library, None
    for folder in wheel_folders:
        library = _first_existing(rctx, [folder + "/" + wheel + "/lib"], soname)
        if library and rctx.path(folder + "/" + wheel + "/include/" + header).exists:
            return library, folder + "/" + wheel + "/include"
    return None, None

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
    names = ["cccl", "cuda_headers", "cudart", "toolkit_version"]
    for name in _libraries(_OLDEST_MAJOR):
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
    wheel_folders = _wheel_folders(rctx)
    root, why_not = _find_toolkit(rctx, wheel_folders)
    major = _major_version(rctx, root) if root else 0
    if root and major < _OLDEST_MAJOR:
        root, why_not = None, "CUDA_%d_is_too_old_at_least_%d_is_needed" % (major, _OLDEST_MAJOR)
    if root == None:
        _write_absent_repository(rctx, why_not)
        return

    for program in _PROGRAMS:
        if rctx.path(root + "/bin/" + program).exists:
            rctx.symlink(root + "/bin/" + program, "bin/" + program)
    rctx.symlink(root + "/nvvm/bin/cicc", "nvvm/bin/cicc")
    rctx.symlink(root + "/nvvm/libdevice", "nvvm/libdevice")
    rctx.symlink(root + "/include", "include")

    wheel_folders = [root + "/.."] + wheel_folders
    lib_dirs = [
        root + "/lib64",
        root + "/lib",
        root + "/targets/x86_64-linux/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
    ]
    rctx.file("toolkit_version/cuda_toolkit.h", _TOOLKIT_HEADER.format(
        major = major,
        cublas_wheel = "nvidia-cublas-cu12" if major == 12 else "nvidia-cublas",
    ))
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
    name = "toolkit_version",
    hdrs = ["toolkit_version/cuda_toolkit.h"],
    includes = ["toolkit_version"],
)
"""]

    # CCCL lies in a folder of its own since CUDA 13, among the other headers before, or in a wheel.
    cccl = "include/cccl" if rctx.path(root + "/include/cccl").exists else None
    if cccl == None and not rctx.path(root + "/include/cub").exists:
        wheel = _first_existing(rctx, wheel_folders, "cuda_cccl/include")
        if wheel:
            rctx.symlink(wheel, "cccl_include")
            cccl = "cccl_include"
    if cccl:
        build.append("""
cc_library(
    name = "cccl",
    hdrs = glob(["{dir}/**"]),
    includes = ["{dir}"],
    deps = [":cuda_headers"],
)
""".format(dir = cccl))
    else:
        build.append("""
cc_library(
    name = "cccl",
    deps = [":cuda_headers"],
)
""")

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

    linked = {}
    for name, (soname, header, wheel) in sorted(_libraries(major).items()):
        library, include = _find_library(rctx, root, lib_dirs, wheel_folders, soname, header, wheel)
        if library == None:
            build.append(_absent([name, name + "_headers"], "%s_or_%s_not_found" % (soname, header)))
            continue
        rctx.symlink(library, "lib/" + soname)
        attrs = ""
        if include:
            link = wheel + "_include"
            if link not in linked:
                rctx.symlink(include, link)
                linked[link] = True
            attrs = "    hdrs = glob([\"%s/**\"]),\n    includes = [\"%s\"],\n" % (link, link)
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
