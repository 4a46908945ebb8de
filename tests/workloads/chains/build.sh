#!/usr/bin/env bash
# Builds one program of C++ and one of Rust into a folder, both optimized, with debug information.
# usage: build.sh FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=${1:?usage: build.sh FOLDER}

"${CXX:-g++}" -std=gnu++17 -O2 -g -Wall -Wextra -Wl,--build-id chains.cpp -o "$out/chains-cpp"
rustc --edition 2024 -O -g -C link-arg=-Wl,--build-id chains.rs -o "$out/chains-rust"
