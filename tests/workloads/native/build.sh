#!/usr/bin/env bash
# Builds the native workload into a folder, three times, each with its own libwork.so beside it:
# native-fp (frame pointers), native-nofp (none), native-stripped (none, and neither symbols nor DWARF); and lives, with the two
# libraries it loads.
# usage: build.sh FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=${1:?usage: build.sh FOLDER}
cc=${CC:-gcc}

build() {
    local name=$1
    shift
    local flags=(-std=gnu11 -O2 -g -Wall -Wextra "-Wl,--build-id" "$@")
    mkdir -p "$out/$name"
    "$cc" "${flags[@]}" -shared -fPIC libwork.c -o "$out/$name/libwork.so"
    # shellcheck disable=SC2016 # $ORIGIN is for the dynamic linker
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
