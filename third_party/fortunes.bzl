"""fortunes(): the texts of Debian's package `fortunes`, as the repository @fortunes.

    @fortunes//:files     the text files, each a series of short documents with a line
                          "%" between them; an empty group where the package is absent
    @fortunes//:defs.bzl  FORTUNES_AVAILABLE, False where the package is absent

They are looked for in $FORTUNES_DIR, else in /usr/share/games/fortunes. The files are
symlinked in and so are declared inputs, hashed by content. A rule that reads them must
bear an empty list: in a genrule write $(SRCS), since $(locations) of nothing is an error.
"""

_DEBIAN_DIR = "/usr/share/games/fortunes"

def _texts(rctx):
    """Paths of the text files."""
    chosen = rctx.os.environ.get("FORTUNES_DIR", "")
    folder = rctx.path(chosen or _DEBIAN_DIR)
    if not folder.exists:
        if chosen:
            fail("\n\n@fortunes: FORTUNES_DIR=%s does not exist. Unset it to use %s.\n" %
                 (chosen, _DEBIAN_DIR))
        return []

    # Beside each text lie its index (.dat) and a second name for it (.u8).
    found = rctx.execute(
        ["find", "-L", str(folder), "-maxdepth", "1", "-type", "f"] +
        ["-not", "-name", "*.dat", "-not", "-name", "*.u8"],
    )
    if found.return_code != 0:
        fail("\n\n@fortunes: cannot list %s: %s\n" % (folder, found.stderr))
    return [rctx.path(line) for line in found.stdout.split("\n") if line]

def _fortunes_impl(rctx):
    names = []
    for entry in _texts(rctx):
        name = "text/" + entry.basename
        rctx.symlink(entry, name)
        names.append(name)
    rctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % rctx.name)
    rctx.file("defs.bzl", "FORTUNES_AVAILABLE = %s\n" % bool(names))
    rctx.file("BUILD.bazel", """filegroup(
    name = "files",
    srcs = %s,
    visibility = ["//visibility:public"],
)
""" % repr(sorted(names)))

fortunes = repository_rule(
    implementation = _fortunes_impl,
    configure = True,
    environ = ["FORTUNES_DIR"],
    local = True,
)
