#!/usr/bin/env bash
# tools/check-format.sh [--fix]: is every C++ file as clang-format 14 writes it? With --fix, makes it
# so.
set -euo pipefail
cd "$(dirname "$0")/.."
formatter=$(command -v clang-format-14 || command -v clang-format) || {
  echo "check-format: clang-format 14 is missing; run tools/install-deps.sh" >&2
  exit 1
}
mode=(--dry-run --Werror)
if [ "${1:-}" = "--fix" ]; then mode=(-i); fi
find actor base bench checkpoint cli client collective compile config controller data device examples formats generation ir mesh \
  models ops planner profile proto rehearsal report search security tests tokenizer web worker -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.h' | sort | xargs -r "$formatter" "${mode[@]}"
