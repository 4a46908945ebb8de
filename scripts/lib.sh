# shellcheck shell=bash
# Paths, messages, and the preparation of directories, for the other scripts to source. Results go
# to standard output, messages to standard error.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${PERFCOLLECT_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME or PERFCOLLECT_CACHE must be set}/.cache}/perfcollect}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
# Files that several projects share are beside the repository. They may be absent.
# shellcheck disable=SC2034 # the scripts that source this file use it
shared=$root/../shared

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# install PACKAGE... - installs Debian packages. If that is impossible here, prints the command and
# returns false.
install() {
    local apt=(apt-get install -y -q --no-install-recommends "$@") log
    if ! have apt-get || [ "$(id -u)" != 0 ]; then
        say "not installed: $*; as root, run: ${apt[*]} (or the equivalent on this system)"
        return 1
    fi
    say "installing $*"
    log=$(mktemp)
    # A new image has no package lists yet, and those of an old image are out of date.
    if DEBIAN_FRONTEND=noninteractive "${apt[@]}" >"$log" 2>&1 </dev/null ||
        { apt-get update -q >"$log" 2>&1 && DEBIAN_FRONTEND=noninteractive "${apt[@]}" >>"$log" 2>&1 </dev/null; }; then
        rm -f "$log"
    else
        tail -n 5 "$log" >&2
        rm -f "$log"
        say "cannot install: $*"
        return 1
    fi
}

# need COMMAND PACKAGE... - installs the packages if the command is missing. Prints why that failed
# and returns false.
need() {
    have "$1" && return
    install "${@:2}" && have "$1"
}

# Ends the script unless cargo and a C compiler are installed, or can be.
need_rust() {
    have cargo || die "cargo is not installed: install Rust (https://rustup.rs)"
    need cc gcc libc6-dev || die "Rust needs a C compiler to link: install gcc"
}

# build_perfcollect OPTION... - builds the binary and prints its path. Cargo reports the path,
# because the target and its directory can be set in many ways.
build_perfcollect() {
    local path
    path=$(cd "$root" && cargo build "$@" --quiet --bin perfcollect --message-format json-render-diagnostics |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    [ -x "$path" ] || die "cargo built no perfcollect"
    printf '%s\n' "$path"
}

# Only one script at a time changes the cache. The lock ends with the process.
lock_cache() {
    exec 9>"$cache/.lock"
    flock -n 9 || { say "waiting for another script that prepares $cache"; flock 9; }
}

# prepare DIRECTORY ORIGIN COMMAND... - runs COMMAND... TEMPORARY and renames TEMPORARY to
# DIRECTORY, so that DIRECTORY is never incomplete. Does nothing if DIRECTORY was made from the same
# ORIGIN. Returns false if the command fails. `set -e` has no effect inside the command.
prepare() {
    local directory=$1 origin=$2 temporary
    shift 2
    [ "$(cat "$directory/.origin" 2>/dev/null)" != "$origin" ] || return 0
    mkdir -p "$(dirname "$directory")"
    rm -rf "$directory".tmp.* "$directory.old"
    temporary=$(mktemp -d "$directory.tmp.XXXXXX")
    chmod 755 "$temporary"
    if ! "$@" "$temporary" 9>&- </dev/null >&2; then
        rm -rf "$temporary"
        return 1
    fi
    printf '%s\n' "$origin" >"$temporary/.origin"
    [ ! -e "$directory" ] || mv "$directory" "$directory.old"
    mv "$temporary" "$directory"
    rm -rf "$directory.old"
}

# unpack ARCHIVE... DIRECTORY - unpacks tar archives.
unpack() {
    local archive directory=${*: -1}
    for archive in "${@:1:$#-1}"; do
        tar -xf "$archive" -C "$directory" --no-same-owner || return
    done
}
