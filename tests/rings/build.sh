#!/usr/bin/env bash
# Builds tests/rings/program. Another compiler changes the addresses: record the ring buffers again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
"${CC:-gcc}" -std=gnu11 -O2 -Wall -Wextra -fomit-frame-pointer -fno-stack-protector -fcf-protection=none -fno-pic -no-pie \
    -nostdlib -static -Wl,--build-id,-z,noseparate-code,-z,norelro program.c -o program
