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
find base ir data mesh compile planner search device ops collective proto controller worker client models cli tests \
  bench examples -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.h' | sort | xargs -r "$formatter" "${mode[@]}"
