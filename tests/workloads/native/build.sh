#!/usr/bin/env bash
# Builds the native workload into a directory in three variants: native-fp with frame pointers,
# native-nofp without, native-stripped without frame pointers, symbols and DWARF. Each has a
# separate libwork.so beside it. Also builds lives and the two libraries that it loads, and pingpong.
# usage: build.sh DIRECTORY
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=${1:?usage: build.sh DIRECTORY}
cc=${CC:-gcc}

build() {
    local name=$1
    shift
    local flags=(-std=gnu11 -O2 -g -Wall -Wextra "-Wl,--build-id" "$@")
    mkdir -p "$out/$name"
    "$cc" "${flags[@]}" -shared -fPIC libwork.c -o "$out/$name/libwork.so"
    # shellcheck disable=SC2016 # the dynamic linker expands $ORIGIN
    "$cc" "${flags[@]}" native.c -o "$out/$name/$name" -pthread -L"$out/$name" -lwork -Wl,-rpath,'$ORIGIN'
}

build native-fp -fno-omit-frame-pointer
build native-nofp -fomit-frame-pointer
build native-stripped -fomit-frame-pointer -s

flags=(-std=gnu11 -O2 -g -Wall -Wextra "-Wl,--build-id" -fomit-frame-pointer)
mkdir -p "$out/lives"
"$cc" "${flags[@]}" lives.c -o "$out/lives/lives" -pthread -ldl
for name in first second; do
    "$cc" "${flags[@]}" -shared -fPIC -DOUTER=${name}_outer -DINNER=${name}_inner plugin.c -o "$out/lives/$name.so"
done
mkdir -p "$out/pingpong"
"$cc" "${flags[@]}" pingpong.c -o "$out/pingpong/pingpong" -pthread
