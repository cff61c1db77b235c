"""cuda_library(): compiles .cu files with nvcc and gives CcInfo to C++ rules."""

load("@cuda//:defs.bzl", "CUDA_COMPATIBLE")
load("@rules_cc//cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@rules_cc//cc:find_cc_toolchain.bzl", "CC_TOOLCHAIN_ATTRS", "find_cpp_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//tools/build:config.bzl", "ONLY_WITH_CUDA")
load(":archs.bzl", "CudaArchsInfo")

# Line information holds absolute paths. This one is the same in every sandbox.
_HERE = "/proc/self/cwd/"

CudaLineinfoInfo = provider("Whether nvcc adds line information.", fields = ["enabled"])

def _cuda_lineinfo_impl(ctx):
    return [CudaLineinfoInfo(enabled = ctx.build_setting_value)]

# Off by default: nvcc stores the modification time of each source with it, so that
# two checkouts give different objects.
cuda_lineinfo = rule(
    implementation = _cuda_lineinfo_impl,
    build_setting = config.bool(flag = True),
)

def _host_flags(ctx, cc_toolchain, feature_configuration):
    """The C++ toolchain's own flags (with --copt, --cxxopt, PIC, sanitizers) that nvcc can forward."""
    variables = cc_common.create_compile_variables(
        feature_configuration = feature_configuration,
        cc_toolchain = cc_toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts,
        use_pic = True,
    )
    flags = cc_common.get_memory_inefficient_command_line(
        feature_configuration = feature_configuration,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    )

    # -std is nvcc's; warnings hit generated code; macros with quotes or commas don't survive -Xcompiler.
    return [
        f
        for f in flags
        if not f.startswith("-W") and not f.startswith("-std=") and
           "\"" not in f and "," not in f and f not in ["-c", "-MD", "-MF", "-o"]
    ]

def _cuda_library_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    feature_configuration = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = [d[CcInfo] for d in ctx.attr.deps + [ctx.attr._cudart]]
    own = CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs),
        quote_includes = depset([".", ctx.bin_dir.path]),
        defines = depset(ctx.attr.defines),
    ))
    merged = cc_common.merge_cc_infos(cc_infos = [own] + deps)
    context = merged.compilation_context

    common = ctx.actions.args()
    common.add("-std=" + ctx.attr.std)

    # Temporary names and the source's absolute path both end up in symbols. The
    # first flag takes names from the output instead; --orig_src_path_name (below)
    # replaces the path. Without them no two builds give the same object.
    common.add("--objdir-as-tempdir")
    common.add("-ccbin", cc_toolchain.compiler_executable)
    common.add_all(ctx.attr._archs[CudaArchsInfo].gencodes, before_each = "-gencode")
    common.add_all(
        _host_flags(ctx, cc_toolchain, feature_configuration),
        format_each = "-Xcompiler=%s",
    )
    mode = ctx.var["COMPILATION_MODE"]
    if mode == "opt":
        common.add_all(["-O3", "-DNDEBUG"])
    elif mode == "dbg":
        common.add("-g")
    if ctx.attr._lineinfo[CudaLineinfoInfo].enabled:
        common.add("-lineinfo")
    common.add_all(context.defines, format_each = "-D%s")
    common.add_all(ctx.attr.local_defines, format_each = "-D%s")

    # nvcc has no -iquote. Repository-relative includes work either way.
    common.add_all(context.quote_includes, format_each = "-I" + _HERE + "%s")
    common.add_all(context.includes, format_each = "-I" + _HERE + "%s")
    common.add_all(context.system_includes, before_each = "-isystem", format_each = _HERE + "%s")
    common.add_all(ctx.attr.copts)

    inputs = depset(
        ctx.files.hdrs + ctx.files._nvcc + ctx.files._toolkit,
        transitive = [context.headers, cc_toolchain.all_files],
    )
    objects = []
    for src in ctx.files.srcs:
        if src.extension in ["h", "cuh", "inc"]:
            continue
        obj = ctx.actions.declare_file("_nvcc/%s/%s.o" % (ctx.label.name, src.basename))
        own_args = ctx.actions.args()
        own_args.add("-Xcudafe=--orig_src_path_name," + src.path)
        own_args.add("-c", _HERE + src.path)
        own_args.add("-o", obj)
        ctx.actions.run(
            executable = _HERE + ctx.executable._nvcc.path,
            arguments = [common, own_args],
            inputs = depset([src] + [f for f in ctx.files.srcs if f.extension in ["h", "cuh", "inc"]], transitive = [inputs]),
            outputs = [obj],
            env = {
                "PATH": "/usr/bin:/bin",
                "PWD": "/proc/self/cwd",  # for the host compiler's debug information
            },
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s with nvcc" % src.short_path,
        )
        objects.append(obj)

    outputs = cc_common.create_compilation_outputs(
        objects = depset(objects),
        pic_objects = depset(objects),
    )
    linking_context, linking_outputs = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = feature_configuration,
        cc_toolchain = cc_toolchain,
        compilation_outputs = outputs,
        linking_contexts = [d.linking_context for d in deps],
        user_link_flags = ctx.attr.linkopts,
        alwayslink = ctx.attr.alwayslink,
        disallow_dynamic_library = True,
    )
    archives = []
    library = linking_outputs.library_to_link
    if library:
        archives = [f for f in [library.static_library, library.pic_static_library] if f]
    return [
        CcInfo(compilation_context = context, linking_context = linking_context),
        DefaultInfo(files = depset(archives)),
        OutputGroupInfo(objects = depset(objects)),
    ]

_cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = dict(CC_TOOLCHAIN_ATTRS, **{
        "srcs": attr.label_list(allow_files = [".cu", ".cuh", ".h", ".inc"]),
        "hdrs": attr.label_list(allow_files = [".cuh", ".h", ".inc"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(doc = "Extra flags for nvcc."),
        "defines": attr.string_list(),
        "local_defines": attr.string_list(),
        "linkopts": attr.string_list(),
        "std": attr.string(default = "c++20"),
        "alwayslink": attr.bool(),
        "_archs": attr.label(default = "//kernels:cuda_archs"),
        "_lineinfo": attr.label(default = "//third_party/cuda:lineinfo"),
        "_cudart": attr.label(default = "@cuda//:cudart"),
        "_nvcc": attr.label(
            default = "@cuda//:nvcc",
            allow_single_file = True,
            cfg = "exec",
            executable = True,
        ),
        "_toolkit": attr.label(default = "@cuda//:toolkit", cfg = "exec"),
    }),
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)

def cuda_library(name, target_compatible_with = [], **kwargs):
    """A library of .cu files; skipped, like all that depends on it, where it is not wanted.

    That is without --config=cuda, so that `bazel test //...` needs no minutes of nvcc, and where no
    toolkit is.
    """
    _cuda_library(
        name = name,
        target_compatible_with = target_compatible_with + CUDA_COMPATIBLE + ONLY_WITH_CUDA,
        **kwargs
    )
