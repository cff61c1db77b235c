#!/bin/bash
# missing_test.sh LABEL=CONSTRAINT...: the labels that lack a module or library, and no others, are
# incompatible, by a constraint whose name tells the package and what it lacks.
set -eu
module=apt_package_libtest-dev_lacks_pkg-config_module_system_library_test_absent
library=apt_package_libtest-dev_lacks_library_libsystem_library_test_absent
diff <(printf '%s\n' "$@" | sort) <(sort << END
:absent=$module
:no_choice=$module
deep:requires_absent=$module
links:absent=$library
links:flag=$library
END
)
