#!/usr/bin/env bash
# tools/make-python-stubs.sh [FOLDER]: writes the wire types of the Python package, made from proto/*.proto by protoc, to
# FOLDER (python/meshwright/_proto when it is not given). They are committed, so that installing the package needs no
# protoc; tests/python compares them with what protoc makes.
set -euo pipefail
cd "$(dirname "$0")/.."
into=$(realpath "${1:-python/meshwright/_proto}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Under the name of the package: messages are registered by the path of their file, and "proto/..." is anybody's.
mkdir -p "$work/meshwright/_proto"
for name in meshwright resolve; do
  sed 's|import "proto/|import "meshwright/_proto/|' "proto/$name.proto" > "$work/meshwright/_proto/$name.proto"
done
protoc --proto_path="$work" --python_out="$work" --pyi_out="$work" "$work"/meshwright/_proto/*.proto
cp "$work"/meshwright/_proto/*_pb2.py "$work"/meshwright/_proto/*_pb2.pyi "$into"
