#!/usr/bin/env bash
# Builds a C++ and a Rust program into a directory, both optimized and with debug information.
# usage: build.sh DIRECTORY
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=${1:?usage: build.sh DIRECTORY}

"${CXX:-g++}" -std=gnu++17 -O2 -g -Wall -Wextra -Wl,--build-id chains.cpp -o "$out/chains-cpp"
rustc --edition 2024 -O -g -C link-arg=-Wl,--build-id chains.rs -o "$out/chains-rust"
