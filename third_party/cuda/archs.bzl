"""cuda_archs(): a flag that names the GPU architectures to compile for.

    load("//third_party/cuda:archs.bzl", "cuda_archs")
    cuda_archs(name = "cuda_archs", build_setting_default = "90a")

in //kernels gives --//kernels:cuda_archs="80;90a", which cuda_library() reads.

    cuda_archs_source(name = "compiled_archs", archs = "//kernels:cuda_archs", out = "compiled_archs.cc")

writes a C++ file that defines `const char kCompiledArchs[]`, here as "80;90a".
"""

CudaArchsInfo = provider(
    "GPU architectures to compile for.",
    fields = {
        "gencodes": "list of values for nvcc's -gencode",
        "names": "the architectures as the flag names them, such as [\"80\", \"90a\"]",
    },
)

def _cuda_archs_impl(ctx):
    flag = "--//%s:%s=%s" % (ctx.label.package, ctx.label.name, ctx.build_setting_value)
    archs = [a.strip() for a in ctx.build_setting_value.split(";")]
    gencodes = []
    for i, arch in enumerate(archs):
        if arch in archs[:i]:
            fail("\n\n%s: '%s' is named twice.\n" % (flag, arch))

        # "a" and "f" mark instructions of one chip or family: 90a has wgmma, 90 has not.
        number = arch[:-1] if arch.endswith(("a", "f")) else arch
        if not number.isdigit():
            fail(("\n\n%s: '%s' is no GPU architecture. Write numbers of compute " +
                  "capability with ';' between them, such as 90a or \"80;90a\".\n") % (flag, arch))
        gencodes.append("arch=compute_%s,code=sm_%s" % (arch, arch))

    # PTX of the newest plain one, from which the driver compiles for later GPUs.
    plain = [int(a) for a in archs if a.isdigit()]
    if plain:
        gencodes.append("arch=compute_%d,code=compute_%d" % (max(plain), max(plain)))
    return [CudaArchsInfo(gencodes = gencodes, names = archs)]

cuda_archs = rule(
    implementation = _cuda_archs_impl,
    build_setting = config.string(flag = True),
)

def _cuda_archs_source_impl(ctx):
    ctx.actions.write(
        ctx.outputs.out,
        "extern const char kCompiledArchs[];\nconst char kCompiledArchs[] = \"%s\";\n" %
        ";".join(ctx.attr.archs[CudaArchsInfo].names),
    )

cuda_archs_source = rule(
    implementation = _cuda_archs_source_impl,
    attrs = {
        "archs": attr.label(mandatory = True, providers = [CudaArchsInfo]),
        "out": attr.output(mandatory = True),
    },
)
