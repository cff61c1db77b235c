#!/bin/bash
# Runs the commands that README.md promises on a fresh machine: in an empty Debian root, from nothing.
#
#   tools/ci/fresh_root.sh trixie                 both commands of README.md, in Debian 13
#   tools/ci/fresh_root.sh bookworm               in Debian 12
#   tools/ci/fresh_root.sh trixie './bazelw test //kernels/cpu/...' './bazelw build //tools/...'
#
# Needs root, debootstrap, git, 20 GiB and, for both commands, up to an hour of two cores. It is run
# by hand and is no step of .ci/run. Options, before RELEASE:
#
#   --keep               keeps the root; else it is removed at the end, also of an interrupted run
#   --root=FOLDER        where the root is made; a root kept there by an earlier run is used again,
#                        with a new checkout. Default: a new folder below $TMPDIR
#   --disk_cache=FOLDER  shares Bazel's disk cache with the root. Give each release a folder of its
#                        own: Bazel does not hash the headers of the C library
#   --mirror=URL         the archive to install from; default: the one of this machine's apt
#
# The root has what debootstrap's "minbase" has, this machine's name servers, apt proxy and
# certificates, and a clone of HEAD. It is entered in namespaces of its own, so that no mount and no
# process is left behind, whatever ends the run. Each command is a line for bash, run in the checkout
# as root. Ends with each command's result and time; exits with 0 if all passed, 1 if one failed or
# the root could not be made, 130 if interrupted.
set -eu

need_gib=20
checkout=/root/nanospeed  # inside of the root
marker=etc/fresh_root     # holds the release, once the root is complete

say() { printf 'fresh_root: %s\n' "$*"; }
die() {
  printf 'fresh_root: %s\n' "$@" >&2
  exit 1
}
usage() { sed -n '2,/^set -eu/{/^set -eu/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

keep=
root=
disk_cache=
mirror=
child=
log=
made=

# parse ARGUMENT...: sets the options, release and commands.
parse() {
  while (($#)); do
    case "$1" in
      --keep) keep=yes ;;
      --root=?*) root="$(realpath -m -- "${1#*=}")" ;;
      --disk_cache=?*) disk_cache="$(realpath -m -- "${1#*=}")" ;;
      --mirror=?*) mirror="${1#*=}" ;;
      --help) usage; exit 0 ;;
      -*) die "unknown option $1; --help lists them" ;;
      *) break ;;
    esac
    shift
  done
  (($#)) || die "no release given: bookworm or trixie; --help tells more"
  release="$1"
  shift
  commands=("$@")
}

# check_machine: refuses what cannot work before anything is written.
check_machine() {
  [[ "$(id -u)" == 0 ]] || die "needs root: debootstrap makes a system's files, and /proc is mounted in it"
  command -v debootstrap > /dev/null || die "no debootstrap. Install it:  apt-get install debootstrap"
  command -v git > /dev/null || die "no git. Install it:  apt-get install git"
  [[ "$release" =~ ^[a-z]+$ && -e "/usr/share/debootstrap/scripts/$release" ]] ||
    die "debootstrap knows no release '$release'; those that were tried are bookworm and trixie"
  unshare --mount --pid --fork true 2> /dev/null ||
    die "this machine lets nobody make mount and process namespaces (a container without SYS_ADMIN?)"
}

# apt_archives: lines "URI SUITE COMPONENT LABEL" of Debian's archives in this machine's apt.
apt_archives() {
  apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT) $(LABEL) $(CODENAME)' \
    'Created-By: Packages' | sed -n 's/^Debian //p' | sort -u
}

# find_archives: sets mirror, and sources to what the root's sources.list shall say. This machine's
# own release may be another: its suites, such as bookworm-security, are asked for by the new name.
find_archives() {
  local uri suite component label codename
  sources=()
  if [[ -n "$mirror" ]]; then
    sources=("deb $mirror $release main")
    return
  fi
  while read -r uri suite component label codename; do
    [[ "$component" == main && "$uri" =~ ^(http|https|file): ]] || continue
    codename="${codename%%-*}"
    case "$suite" in
      "$codename" | stable | oldstable | testing)
        [[ "$label" == Debian ]] || continue
        mirror="${mirror:-$uri}"
        suite="$release"
        ;;
      "$codename-updates" | "$codename-security") suite="$release${suite#"$codename"}" ;;
      *) continue ;;
    esac
    sources+=("deb $uri $suite main")
  done < <(apt_archives)
  [[ -n "$mirror" ]] ||
    die "this machine's apt has no archive of Debian's, or has not read it yet: run apt-get update, or give --mirror=URL"
}

# find_commands: those of README.md, as HEAD has it, unless some were given.
find_commands() {
  ((${#commands[@]} == 0)) || return 0
  mapfile -t commands < <(git -C "$source" show HEAD:README.md |
    sed -n '/^## Two commands/,/^## [^T]/s/^    \(\.\/bazelw .*\)/\1/p')
  ((${#commands[@]} == 2)) ||
    die "README.md has ${#commands[@]} commands that begin with ./bazelw under 'Two commands', not 2"
}

# make_folder: makes the root's folder, or finds the root of an earlier run in it (reused=yes).
make_folder() {
  reused=
  if [[ -z "$root" ]]; then
    root="$(mktemp -d "${TMPDIR:-/tmp}/fresh_root.$release.XXXXXX")"
  elif [[ -e "$root/$marker" ]]; then
    [[ "$(< "$root/$marker")" == "$release" ]] || die "$root is a root of $(< "$root/$marker"), not of $release"
    reused=yes
  else
    [[ ! -e "$root" || -d "$root" && -z "$(ls -A "$root")" ]] ||
      die "$root is neither empty nor a root that an earlier run kept"
    mkdir -p "$root"
  fi
  chmod 755 "$root"
  made="$root"
  local free
  free="$(df --output=avail -BG "$root" | tail -n 1 | tr -dc 0-9)"
  ((free >= need_gib)) || [[ -n "$reused" ]] ||
    die "$root has $free GiB of free space, and both commands need $need_gib; give --root=FOLDER on a larger disk"
}

# contained COMMAND...: runs it in mount and process namespaces of its own and waits. All of its
# processes and mounts end with it, or with this script.
contained() {
  local status=0
  setpriv --pdeathsig=KILL unshare --mount --pid --fork --kill-child --mount-proc -- "$@" < /dev/null &
  child=$!
  wait "$child" || status=$?
  child=
  return "$status"
}

finish() {
  local status=$? first= tries
  trap - EXIT
  trap '' INT TERM HUP
  if [[ -n "$child" ]]; then
    # The first process of the namespace takes all others with it, and is there until they are gone.
    {
      read -r first < "/proc/$child/task/$child/children" || true
      first="${first%% *}"
      kill -KILL ${first:+"$first"} "$child" || true
      for ((tries = 100; tries > 0; --tries)); do
        [[ -n "$first" && -e "/proc/$first" ]] || break
        sleep 0.1
      done
      wait "$child" || true
    } 2> /dev/null  # where bash tells that a job was killed
  fi
  rm -f "$log"
  if [[ -n "$keep" && -e "$made/$marker" ]]; then
    say "the root is kept:  --keep --root=$root $release  uses it again"
  elif [[ -n "$made" ]]; then
    rm -rf --one-file-system "$made"
  fi
  exit "$status"
}

# make_root: an empty Debian with this machine's way to the archive.
make_root() {
  local http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" bundle=/etc/ssl/certs/ca-certificates.crt
  eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
  export http_proxy https_proxy
  local start="$SECONDS"
  contained debootstrap --variant=minbase "$release" "$root" "$mirror" > "$log" 2>&1 || {
    tail -n 40 "$log" >&2
    die "debootstrap failed for $release from $mirror; what it said is above"
  }
  printf '%s\n' "${sources[@]}" > "$root/etc/apt/sources.list"
  apt-config dump | grep -E '^Acquire::(https?|Check-[A-Za-z-]+|Retries|ForceIPv[46])\b' \
    > "$root/etc/apt/apt.conf.d/90fresh_root" || true
  if [[ "${sources[*]}" == *https:* && -e "$bundle" ]]; then
    cp "$bundle" "$root/etc/apt/fresh_root.crt"
    echo 'Acquire::https::CAInfo "/etc/apt/fresh_root.crt";' >> "$root/etc/apt/apt.conf.d/90fresh_root"
  fi
  cp -a /etc/apt/auth.conf /etc/apt/auth.conf.d "$root/etc/apt/" 2> /dev/null || true
  cp -L /etc/hosts "$root/etc/hosts"
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  echo "$release" > "$root/$marker"
  say "$release: an empty root in $((SECONDS - start)) s"
}

# make_checkout: a clone of HEAD, without what is not committed.
make_checkout() {
  local commit
  commit="$(git -C "$source" rev-parse HEAD)"
  rm -rf "${root:?}$checkout"
  git clone --quiet --no-checkout --no-hardlinks "$source" "$root$checkout"
  git -C "$root$checkout" -c advice.detachedHead=false checkout --quiet "$commit"
  say "commit $commit"
  [[ -z "$(git -C "$source" status --porcelain)" ]] || say "changes that are not committed are left out"
}

# enter FOLDER CACHE COMMAND...: in the namespaces, makes FOLDER the root of the file system and runs
# the commands there. A mere chroot would forbid Bazel its sandbox: the kernel makes no user namespace
# in one.
enter() {
  local root="$1" cache="$2"
  shift 2
  mount --bind "$root" "$root"
  cd "$root"
  mount -t proc proc proc
  mount -t sysfs -o ro sysfs sys
  mount --rbind /dev dev
  if [[ -n "$cache" ]]; then
    mkdir -p root/.cache/nanospeed-bazel
    mount --bind "$cache" root/.cache/nanospeed-bazel
  fi
  pivot_root . mnt
  umount -l /mnt
  exec env -i HOME=/root USER=root TERM=dumb LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c "$(declare -f say run_commands); run_commands \"\$@\"" run_commands "$checkout" "$@"
}

# run_commands FOLDER COMMAND...: inside of the root; a line about each at the end.
run_commands() {
  local command start status failed=0 results=()
  cd "$1" || return 1
  shift
  for command in "$@"; do
    say "$command"
    start="$SECONDS"
    status=0
    bash -c "$command" < /dev/null || status=$?
    results+=("$( ((status)) && echo "FAILED with $status" || echo passed) in $((SECONDS - start)) s: $command")
    ((status == 0)) || failed=1
  done
  say "$(. /etc/os-release && echo "$PRETTY_NAME"), Debian $(< /etc/debian_version), $(nproc) cores:" \
    $(dpkg-query -W -f '${db:Status-Abbrev}${Package}=${Version}\n' bazel-bootstrap g++ libabsl-dev libdnnl-dev \
      libgtest-dev libhwy-dev nlohmann-json3-dev openmpi-bin python3 2> /dev/null | sed -n 's/^ii //p')
  for command in "${results[@]}"; do say "$command"; done
  return "$failed"
}

# A function, so that bash has read all of this file before it begins.
main() {
  parse "$@"
  source="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
  check_machine
  find_archives
  find_commands
  [[ -z "$disk_cache" ]] || mkdir -p "$disk_cache"
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
  log="$(mktemp)"
  trap finish EXIT
  make_folder
  if [[ -n "$reused" ]]; then say "a root of an earlier run: not from nothing"; else make_root; fi
  make_checkout
  [[ -z "$disk_cache" ]] || say "Bazel's disk cache is shared: $disk_cache; times are not those of a fresh machine"
  contained bash -c "set -eu; checkout=$checkout; $(declare -f say enter run_commands); enter \"\$@\"" \
    enter "$root" "$disk_cache" "${commands[@]}"
}

main "$@"
exit
