"""Every third-party dependency, each under the repository name that upstream uses."""

load("//third_party:fortunes.bzl", "fortunes")
load("//third_party:system_library.bzl", "system_library")
load("//third_party/cuda:cuda_configure.bzl", "cuda_configure")

# Upstream's label -> pkg-config module, of the targets that some BUILD file names.
_ABSL_TARGETS = {
    "absl/container:flat_hash_map": "absl_flat_hash_map",
    "absl/flags:commandlineflag": "absl_flags_commandlineflag",
    "absl/flags:flag": "absl_flags",
    "absl/flags:parse": "absl_flags_parse",
    "absl/flags:reflection": "absl_flags_reflection",
    "absl/flags:usage": "absl_flags_usage",
    "absl/status": "absl_status",
    "absl/status:statusor": "absl_statusor",
    "absl/strings": "absl_strings",
    "absl/strings:str_format": "absl_str_format",
    "absl/time": "absl_time",
    "absl/types:span": "absl_span",
}

def _with_names(targets):
    """Completes the short label "absl/hash" to "absl/hash:hash"."""
    return {
        (k if ":" in k else k + ":" + k.split("/")[-1]): v
        for k, v in targets.items()
    }

def third_party_dependencies():
    """Declares the repositories; each is set up only when a target needs it."""
    system_library(
        name = "com_google_absl",
        apt = "libabsl-dev",
        headers = ["absl"],
        targets = _with_names(_ABSL_TARGETS),
    )
    system_library(
        name = "com_google_googletest",
        apt = "libgmock-dev",
        headers = ["gtest", "gmock"],
        targets = {
            ":gtest": "gmock gtest",
            ":gtest_main": "gmock_main gmock gtest",
        },
    )
    # Headers alone: //kernels/cpu:simd_target does what its shared library would be needed for.
    system_library(
        name = "com_google_highway",
        apt = "libhwy-dev",
        # Targets that no processor of these years stops at, or that only add what no kernel uses:
        # each costs a seventh of the time of compiling the kernels.
        defines = ["HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_AVX3_DL)"],
        headers = ["hwy"],
        targets = {":hwy": ""},
    )
    system_library(
        name = "nlohmann_json",
        apt = "nlohmann-json3-dev",
        headers = ["nlohmann"],
        targets = {":json": "nlohmann_json"},
    )
    # Headers alone: //kernels/cpu:gemm opens the library when the CPU backend is first used.
    system_library(
        name = "onednn",
        apt = "libdnnl-dev",
        headers = [
            "dnnl.h",
            "dnnl.hpp",
            "dnnl_config.h",
            "dnnl_types.h",
            "dnnl_version.h",
            "oneapi",
        ],
        optional = True,
        targets = {":dnnl_headers": ""},
    )
    system_library(
        name = "mpi",
        apt = "libopenmpi-dev",
        # No MPI C++ bindings: they were removed from the standard.
        defines = [
            "MPICH_SKIP_MPICXX",
            "OMPI_SKIP_MPICXX",
        ],
        headers = [
            "mpi.h",
            "mpi_portable_platform.h",
        ],
        linkage = "system",
        optional = True,
        targets = {":mpi": "ompi-c|mpi-c|mpich"},
    )

    # A package that lacks some modules, for //third_party/system_library_test.
    system_library(
        name = "system_library_test",
        apt = "libtest-dev",
        optional = True,
        pc_files = ["//third_party/system_library_test:present.pc"],
        targets = {
            ":absent": "system_library_test_absent",
            ":chosen": "system_library_test_absent|requires_absent|present",
            ":no_choice": "system_library_test_absent|requires_absent",
            "deep:present": "present",
            "deep:requires_absent": "requires_present requires_absent",
            "deep:requires_present": "requires_present",
            "links:absent": "links_absent",
            "links:flag": "-lsystem_library_test_absent",
        },
    )
    fortunes(name = "fortunes")
    cuda_configure(name = "cuda")
