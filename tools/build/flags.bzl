"""choice_flag(): a command-line flag that takes one of a few values.

    load("//tools/build:flags.bzl", "choice_flag")
    choice_flag(name = "backend", values = ["cpu", "cuda"])   # the first is the default

in //kernels gives --//kernels:backend=cuda on the command line and, for select(), the
config_settings //kernels:backend_cpu and //kernels:backend_cuda.
"""

def _choice_flag_impl(ctx):
    value = ctx.build_setting_value
    if value not in ctx.attr.values:
        fail("\n\n--//%s:%s=%s: no such choice. Choose one of: %s\n" %
             (ctx.label.package, ctx.label.name, value, ", ".join(ctx.attr.values)))
    return []

_choice_flag = rule(
    implementation = _choice_flag_impl,
    build_setting = config.string(flag = True),
    attrs = {"values": attr.string_list(mandatory = True)},
)

def choice_flag(name, values, visibility = ["//visibility:public"]):
    """A string flag with a closed set of values.

    Args:
      name: of the flag.
      values: its choices; the first is the default.
      visibility: of the flag and of its config_settings.
    """
    _choice_flag(
        name = name,
        build_setting_default = values[0],
        values = values,
        visibility = visibility,
    )
    for value in values:
        native.config_setting(
            name = name + "_" + value,
            flag_values = {":" + name: value},
            visibility = visibility,
        )
