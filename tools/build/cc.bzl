"""cc_library, cc_binary and cc_test as all packages here use them.

They are Bazel's own with a precompiled header (precompiled.bzl). Tests are compiled with -O1: they spend
their time in the libraries, which are not.
"""

load("@rules_cc//cc:cc_binary.bzl", _cc_binary = "cc_binary")
load("@rules_cc//cc:cc_library.bzl", _cc_library = "cc_library")
load("@rules_cc//cc:cc_test.bzl", _cc_test = "cc_test")

# Other compilation modes keep their own level.
TEST_COPTS = select({
    "//tools/build:optimised": ["-O1"],
    "//conditions:default": [],
})

def _with(header, copts, deps):
    return {
        "copts": ["-include", "tools/build/%s.h" % header] + copts,
        "deps": deps + ["//tools/build:" + header],
    }

def cc_library(name, srcs = [], copts = [], deps = [], testonly = False, **kwargs):
    """A library; one without sources compiles nothing and needs no precompiled header.

    linkstatic: nothing here uses the shared library that a build of //... would make of it too.
    """
    if srcs and testonly:
        attrs = _with("test_headers", TEST_COPTS + copts, deps)
    elif srcs:
        attrs = _with("common_headers", copts, deps)
    else:
        attrs = {"copts": copts, "deps": deps}
    _cc_library(name = name, srcs = srcs, linkstatic = True, testonly = testonly, **dict(kwargs, **attrs))

def cc_binary(name, copts = [], deps = [], **kwargs):
    """A program."""
    _cc_binary(name = name, **dict(kwargs, **_with("common_headers", copts, deps)))

def cc_test(name, copts = [], deps = [], **kwargs):
    """A test of GoogleTest's."""
    _cc_test(name = name, **dict(kwargs, **_with("test_headers", TEST_COPTS + copts, deps)))
