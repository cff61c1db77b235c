"""Every third-party dependency, each under the repository name that upstream uses."""

load("//third_party:fortunes.bzl", "fortunes")
load("//third_party:system_library.bzl", "system_library")
load("//third_party/cuda:cuda_configure.bzl", "cuda_configure")

# Upstream's label -> pkg-config module.
_ABSL_TARGETS = {
    "absl/algorithm": "absl_algorithm",
    "absl/algorithm:container": "absl_algorithm_container",
    "absl/base": "absl_base",
    "absl/base:config": "absl_config",
    "absl/base:core_headers": "absl_core_headers",
    "absl/base:dynamic_annotations": "absl_dynamic_annotations",
    "absl/base:endian": "absl_endian",
    "absl/base:log_severity": "absl_log_severity",
    "absl/base:raw_logging_internal": "absl_raw_logging_internal",
    "absl/cleanup": "absl_cleanup",
    "absl/container:btree": "absl_btree",
    "absl/container:fixed_array": "absl_fixed_array",
    "absl/container:flat_hash_map": "absl_flat_hash_map",
    "absl/container:flat_hash_set": "absl_flat_hash_set",
    "absl/container:inlined_vector": "absl_inlined_vector",
    "absl/container:node_hash_map": "absl_node_hash_map",
    "absl/container:node_hash_set": "absl_node_hash_set",
    "absl/debugging:failure_signal_handler": "absl_failure_signal_handler",
    "absl/debugging:leak_check": "absl_leak_check",
    "absl/debugging:stacktrace": "absl_stacktrace",
    "absl/debugging:symbolize": "absl_symbolize",
    "absl/flags:commandlineflag": "absl_flags_commandlineflag",
    "absl/flags:config": "absl_flags_config",
    "absl/flags:flag": "absl_flags",
    "absl/flags:marshalling": "absl_flags_marshalling",
    "absl/flags:parse": "absl_flags_parse",
    "absl/flags:program_name": "absl_flags_program_name",
    "absl/flags:reflection": "absl_flags_reflection",
    "absl/flags:usage": "absl_flags_usage",
    "absl/flags:usage_internal": "absl_flags_usage_internal",
    "absl/functional:any_invocable": "absl_any_invocable",
    "absl/functional:bind_front": "absl_bind_front",
    "absl/functional:function_ref": "absl_function_ref",
    "absl/hash": "absl_hash",
    "absl/memory": "absl_memory",
    "absl/meta:type_traits": "absl_type_traits",
    "absl/numeric:bits": "absl_bits",
    "absl/numeric:int128": "absl_int128",
    "absl/random": "absl_random_random",
    "absl/random:bit_gen_ref": "absl_random_bit_gen_ref",
    "absl/random:distributions": "absl_random_distributions",
    "absl/random:seed_gen_exception": "absl_random_seed_gen_exception",
    "absl/random:seed_sequences": "absl_random_seed_sequences",
    "absl/status": "absl_status",
    "absl/status:statusor": "absl_statusor",
    "absl/strings": "absl_strings",
    "absl/strings:cord": "absl_cord",
    "absl/strings:str_format": "absl_str_format",
    "absl/synchronization": "absl_synchronization",
    "absl/time": "absl_time",
    "absl/types:any": "absl_any",
    "absl/types:compare": "absl_compare",
    "absl/types:optional": "absl_optional",
    "absl/types:span": "absl_span",
    "absl/types:variant": "absl_variant",
    "absl/utility": "absl_utility",
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
    system_library(
        name = "com_google_highway",
        apt = "libhwy-dev",
        headers = ["hwy"],
        targets = {
            ":hwy": "libhwy",
            ":contrib": "libhwy-contrib libhwy",
        },
    )
    system_library(
        name = "nlohmann_json",
        apt = "nlohmann-json3-dev",
        headers = ["nlohmann"],
        targets = {":json": "nlohmann_json"},
    )
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
        targets = {":dnnl": "-ldnnl"},
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

    # Both for //tools/fetch_fineweb alone. "system": a static libcurl would need a dozen more
    # packages, and it must share its OpenSSL with the program.
    system_library(
        name = "curl",
        apt = "libcurl4-openssl-dev",
        headers = ["curl"],
        linkage = "system",
        optional = True,
        targets = {":curl": "libcurl"},
    )
    system_library(
        name = "openssl",
        apt = "libssl-dev",
        headers = ["openssl"],
        linkage = "system",
        optional = True,
        targets = {":crypto": "libcrypto"},
    )
    fortunes(name = "fortunes")
    cuda_configure(name = "cuda")
