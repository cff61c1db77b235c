"""commit_source: a C++ file that says which commit the program was built from."""

def _commit_source_impl(ctx):
    ctx.actions.run_shell(
        inputs = [ctx.info_file],
        outputs = [ctx.outputs.out],
        # The value of "STABLE_COMMIT value", of which commits and these phrases need no escapes.
        command = """
            commit="$(sed -n 's/^STABLE_COMMIT //p' "$1" | tr -d '\\\\"')"
            [ -n "$commit" ] || commit="unknown: built without tools/build/workspace_status.sh"
            printf 'extern const char kCommit[];\\nconst char kCommit[] = "%s";\\n' "$commit" > "$2"
        """,
        arguments = [ctx.info_file.path, ctx.outputs.out.path],
        mnemonic = "CommitSource",
    )

commit_source = rule(
    implementation = _commit_source_impl,
    attrs = {"out": attr.output(mandatory = True)},
    doc = "Writes `out`, which defines `extern const char kCommit[]`.",
)
