#!/bin/bash
# Shows that the same inputs give the same bytes, whichever checkout they are built in:
#
#   tools/ci/check_hermetic.sh
#   TARGET=//sched/... tools/ci/check_hermetic.sh
#   CACHE=~/.cache/nanospeed-bazel CONFIG=werror tools/ci/check_hermetic.sh
#   AGAIN=//data/... tools/ci/check_hermetic.sh    builds no more than that for the third time
#
# Two copies of HEAD, at different paths and with different file times. The first is built
# with an empty disk cache, or CACHE; the second from that cache, where every action has to hit;
# then the second again without any cache, and all files that it makes have to be the first one's,
# byte for byte (but for precompiled headers, of which gcc makes other bytes each time). With a CACHE
# that builds of this tree have filled, only the last compiles.
# Nothing but CACHE and a temporary folder is written.
set -eu

target="${TARGET:-//tools:track1}"
again="${AGAIN:-$target}"
source="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
scratch="$(mktemp -d)"
first="$scratch/first"
second="$scratch/a_folder/further/down/second"
cache="${CACHE:-$scratch/cache}"
config="${CONFIG:-opt}"

# bazel CHECKOUT COMMAND [OPTIONS...]
bazel() {
  local checkout="$1"
  shift
  (cd "$checkout" && ./bazelw --output_base="$checkout.out" "$@")
}

finish() {
  for checkout in "$first" "$second"; do
    [[ ! -d "$checkout.out" ]] || bazel "$checkout" shutdown || true
  done
  chmod -R u+w "$scratch"  # Bazel write-protects its outputs
  rm -rf "$scratch"
}
trap finish EXIT

fail() {
  echo "check_hermetic: $*" >&2
  exit 1
}

# build CHECKOUT CACHE TARGETS: leaves what Bazel said in CHECKOUT.log; CACHE may be empty.
build() {
  local targets
  read -ra targets <<< "$3"
  bazel "$1" build --symlink_prefix=/ --noshow_progress --color=no --disk_cache="$2" \
    --config="$config" "${targets[@]}" > "$1.log" 2>&1 || { cat "$1.log" >&2; fail "$3 does not build"; }
}

# processes CHECKOUT: its last build's line, "8 processes: 3 internal, 5 linux-sandbox."
processes() { sed -n 's/^INFO: \([0-9]* process.*\)$/\1/p' "$1.log"; }

# hashes CHECKOUT: of every file that its build made, intermediate ones and runfiles too.
# Manifests are left out, whose purpose is to hold absolute paths.
hashes() {
  (cd "$1.out/execroot"/*/ &&
    find bazel-out -path '*/bin/*' -type f -not -name '*runfiles_manifest' -not -name MANIFEST \
      -not -name '*.gch' |
    LC_ALL=C sort | xargs -d '\n' sha256sum)
}

for checkout in "$first" "$second"; do
  mkdir -p "$checkout"
  git -C "$source" archive HEAD | tar -x -C "$checkout"
done
find "$second" -exec touch -d '2001-02-03 04:05:06' {} +

build "$first" "$cache" "$target $again"
echo "first checkout:               $(processes "$first")"
hashes "$first" > "$scratch/first.sha256"
[[ -s "$scratch/first.sha256" ]] || fail "$target makes no files to compare"
bazel "$first" shutdown  # for its memory

build "$second" "$cache" "$target $again"
echo "second checkout, same cache:  $(processes "$second")"
hit=' [0-9]+ (disk|remote) cache hit'
[[ "$(processes "$second")" =~ $hit ]] || fail "the second checkout got nothing from the cache"
rest="$(processes "$second" | sed -E "s/^[^:]*://; s/ [0-9]+ internal//; s/$hit//; s/[,. ]//g")"
[[ -z "$rest" ]] || fail "the second checkout ran actions that the cache should have had"

bazel "$second" clean 2> /dev/null
build "$second" "" "$again"
echo "second checkout, no cache:    $(processes "$second")"
[[ ! "$(processes "$second")" =~ $hit ]] || fail "the build without a cache used one"
hashes "$second" > "$scratch/second.sha256"
[[ -s "$scratch/second.sha256" ]] || fail "$again makes no files to compare"
# A line of the third build that the first one has not is another file, or other bytes.
if different="$(grep -vxFf "$scratch/first.sha256" "$scratch/second.sha256")"; then
  printf '%s\n' "$different" >&2
  fail "two builds of $again gave different bytes"
fi
echo "check_hermetic: $again: $(wc -l < "$scratch/second.sha256") files, the same in both checkouts"
