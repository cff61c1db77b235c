"""precompiled_header(): headers that gcc parses once for all files of one kind.

Half of the time of a compilation goes into the headers of Abseil, GoogleTest and the standard library.
A target that has a precompiled header as a dependency and is compiled with

    -include tools/build/NAME.h

gets them from a file in gcc's own format. NAME.h itself is empty: where the compiler is not gcc, or gcc
refuses the precompiled file because it was compiled with other flags, each source reads the headers that
it includes, as if there were none. So a source has to include what it uses, and the build without them,
--//tools/build:precompiled_headers=off, shows that it does.

gcc looks at macros and at flags of the machine before it takes the file, but not at the level of
optimisation: with another than the file's it crashes. Flags of that kind are for the whole build (--copt) or
for both sides (TEST_COPTS in cc.bzl), never for one target.
"""

load("@rules_cc//cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@rules_cc//cc:find_cc_toolchain.bzl", "CC_TOOLCHAIN_ATTRS", "find_cpp_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _precompile(ctx, cc_toolchain, header):
    """Declares header.gch, made with the flags that sources are compiled with."""
    feature_configuration = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    context = cc_common.merge_cc_infos(cc_infos = [d[CcInfo] for d in ctx.attr.deps]).compilation_context
    gch = ctx.actions.declare_file(header.basename + ".gch")
    variables = cc_common.create_compile_variables(
        feature_configuration = feature_configuration,
        cc_toolchain = cc_toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
        quote_include_directories = context.quote_includes,
        include_directories = context.includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
        use_pic = False,  # see .bazelrc
    )
    args = ctx.actions.args()
    args.add_all(cc_common.get_memory_inefficient_command_line(
        feature_configuration = feature_configuration,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    ))
    args.add("-frandom-seed=" + header.basename)
    args.add_all(["-x", "c++-header", ctx.file.src, "-o", gch])
    ctx.actions.run(
        executable = cc_toolchain.compiler_executable,
        arguments = [args],
        inputs = depset([ctx.file.src], transitive = [context.headers, cc_toolchain.all_files]),
        outputs = [gch],
        env = {"PATH": "/usr/bin:/bin"},
        mnemonic = "PrecompileHeader",
        progress_message = "Precompiling %s" % ctx.file.src.short_path,
    )
    return gch

def _precompiled_header_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "// Empty on purpose: see precompiled.bzl.\n")
    headers = [header]
    if ctx.attr.enabled and "clang" not in cc_toolchain.compiler:
        headers.append(_precompile(ctx, cc_toolchain, header))
    return [CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset(headers),
        quote_includes = depset([ctx.bin_dir.path]),
    ))]

_precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = dict(CC_TOOLCHAIN_ATTRS, **{
        "src": attr.label(mandatory = True, allow_single_file = [".inc"]),
        "deps": attr.label_list(providers = [CcInfo], doc = "What src includes."),
        "copts": attr.string_list(doc = "As the targets have them that use it."),
        "enabled": attr.bool(mandatory = True),
    }),
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)

def precompiled_header(name, **kwargs):
    """Declares the target NAME, for `deps`, whose header is NAME.h in its package.

    Args:
      name: of the target.
      **kwargs: src (a list of #include lines), deps (what they need), copts.
    """
    _precompiled_header(
        name = name,
        enabled = select({
            "//tools/build:precompiled_headers_on": True,
            "//conditions:default": False,
        }),
        **kwargs
    )
