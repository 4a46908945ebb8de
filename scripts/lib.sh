# shellcheck shell=bash
# What the scripts share: where things lie, how to say something, how to prepare a folder once and whole.
# Sourced by the others, never run. Standard output is for results; everything said goes to standard error.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${PERFCOLLECT_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME or PERFCOLLECT_CACHE must be set}/.cache}/perfcollect}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
# Files that are handed from project to project lie beside the repository; they may be absent.
# shellcheck disable=SC2034 # used by the scripts that source this
shared=$root/../shared

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# install PACKAGE... - installs Debian packages; false, with the command to type, when this user or this machine cannot.
install() {
    local apt=(apt-get install -y -q --no-install-recommends "$@") log
    if ! have apt-get || [ "$(id -u)" != 0 ]; then
        say "not installed: $*; as root: ${apt[*]} (or what does the same here)"
        return 1
    fi
    say "installing $*"
    log=$(mktemp)
    # A fresh image has no package lists yet, an old one has stale ones.
    if DEBIAN_FRONTEND=noninteractive "${apt[@]}" >"$log" 2>&1 </dev/null ||
        { apt-get update -q >"$log" 2>&1 && DEBIAN_FRONTEND=noninteractive "${apt[@]}" >>"$log" 2>&1 </dev/null; }; then
        rm -f "$log"
    else
        tail -n 5 "$log" >&2
        rm -f "$log"
        say "could not install: $*"
        return 1
    fi
}

# need COMMAND PACKAGE... - the command is there, or is installed now; else false, in words.
need() {
    have "$1" && return
    install "${@:2}" && have "$1"
}

# Cargo, and what it links a static binary with.
need_rust() {
    have cargo || die "cargo is not installed: Rust is needed (https://rustup.rs)"
    need cc gcc libc6-dev || die "there is no C compiler, which Rust needs to link"
}

# build_perfcollect OPTION... - builds the binary; prints its path. Cargo itself says where that is: the target folder and the target can
# be set in many ways.
build_perfcollect() {
    local path
    path=$(cd "$root" && cargo build "$@" --quiet --bin perfcollect --message-format json-render-diagnostics |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    [ -x "$path" ] || die "cargo built no perfcollect"
    printf '%s\n' "$path"
}

# One script at a time changes the cache. The lock goes with the process.
lock_cache() {
    exec 9>"$cache/.lock"
    flock -n 9 || { say "waiting for another run that prepares $cache"; flock 9; }
}

# prepare FOLDER ORIGIN COMMAND... - runs COMMAND... TEMPORARY unless FOLDER was already made from ORIGIN, then moves the
# result into place: FOLDER is absent, old or whole, never half. False if the command fails; `set -e` does not hold in it.
prepare() {
    local folder=$1 origin=$2 temporary
    shift 2
    [ "$(cat "$folder/.origin" 2>/dev/null)" != "$origin" ] || return 0
    mkdir -p "$(dirname "$folder")"
    rm -rf "$folder".tmp.* "$folder.old"
    temporary=$(mktemp -d "$folder.tmp.XXXXXX")
    chmod 755 "$temporary"
    if ! "$@" "$temporary" 9>&- </dev/null >&2; then
        rm -rf "$temporary"
        return 1
    fi
    printf '%s\n' "$origin" >"$temporary/.origin"
    [ ! -e "$folder" ] || mv "$folder" "$folder.old"
    mv "$temporary" "$folder"
    rm -rf "$folder.old"
}

# unpack ARCHIVE... FOLDER - the contents of tar archives.
unpack() {
    local archive folder=${*: -1}
    for archive in "${@:1:$#-1}"; do
        tar -xf "$archive" -C "$folder" --no-same-owner || return
    done
}
