"""Aspects that check C++ sources with clang-tidy and clang-format, as cached actions.

    ./bazelw build --config=tidy //...
    ./bazelw build --config=format //...
"""

load("@rules_cc//cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@rules_cc//cc:find_cc_toolchain.bzl", "CC_TOOLCHAIN_ATTRS", "find_cpp_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

# Only gcc knows these.
_GCC_ONLY = ["-fno-canonical-system-headers", "-Wno-free-nonheap-object", "-Wunused-but-set-parameter"]

# On standard error clang-tidy counts the warnings it suppressed; that is worth showing
# only beside a failure.
_TIDY = "{ errors=$(clang-tidy --quiet --config-file=%s %s -- %s 2>&1 >&3) || { echo \"$errors\" >&2; false; }; } 3>&1"

def _own_sources(target, ctx, extensions):
    if target.label.workspace_name or CcInfo not in target:
        return []
    files = []
    for name in ["srcs", "hdrs"]:
        for dep in getattr(ctx.rule.attr, name, []):
            files += [f for f in dep.files.to_list() if f.is_source and f.extension in extensions]
    return files

def _check(ctx, source, tool, command, inputs):
    stamp = ctx.actions.declare_file("_lint/%s/%s.%s" % (ctx.label.name, source.basename, tool))
    ctx.actions.run_shell(
        command = command + " && touch " + stamp.path,
        env = {"PATH": "/usr/bin:/bin"},
        inputs = inputs,
        mnemonic = tool,
        outputs = [stamp],
        progress_message = "%s %s" % (tool, source.short_path),
    )
    return stamp

def _clang_tidy_impl(target, ctx):
    sources = _own_sources(target, ctx, ["cc"])
    if not sources:
        return []
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = cc_toolchain)
    context = target[CcInfo].compilation_context
    own_defines = getattr(ctx.rule.attr, "local_defines", [])
    flags = cc_common.get_memory_inefficient_command_line(
        action_name = CPP_COMPILE_ACTION_NAME,
        feature_configuration = features,
        variables = cc_common.create_compile_variables(
            cc_toolchain = cc_toolchain,
            feature_configuration = features,
            include_directories = context.includes,
            preprocessor_defines = depset(own_defines, transitive = [context.defines]),
            quote_include_directories = context.quote_includes,
            system_include_directories = context.system_includes,
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts,
        ),
    )
    quoted = " ".join(["'%s'" % f for f in flags if f not in _GCC_ONLY])
    config = ctx.file._config
    return [OutputGroupInfo(lint = depset([
        _check(
            ctx,
            source,
            "ClangTidy",
            _TIDY % (config.path, source.path, quoted),
            depset([source, config], transitive = [context.headers]),
        )
        for source in sources
    ]))]

clang_tidy = aspect(
    implementation = _clang_tidy_impl,
    attrs = dict(CC_TOOLCHAIN_ATTRS, _config = attr.label(
        allow_single_file = True,
        default = "//:.clang-tidy",
    )),
    fragments = ["cpp"],
    toolchains = use_cc_toolchain(),
)

def _clang_format_impl(target, ctx):
    config = ctx.file._config
    return [OutputGroupInfo(lint = depset([
        _check(
            ctx,
            source,
            "ClangFormat",
            "clang-format --dry-run --Werror " + source.path,
            depset([source, config]),
        )
        for source in _own_sources(target, ctx, ["cc", "cu", "cuh", "h"])
    ]))]

clang_format = aspect(
    implementation = _clang_format_impl,
    attrs = {"_config": attr.label(
        allow_single_file = True,
        default = "//:.clang-format",
    )},
)
