# Packs a build so that another machine can run it, for tools/gpu-check --pack: that sets $binaries and $targets
# (what is needed of a build, and the names to build it by).
# shellcheck shell=bash disable=SC2154

# What the other machine has to bring: its C library, and the driver that fits its kernel.
of_glibc='^(ld-linux.*|lib(c|m|pthread|dl|rt|util|resolv|anl|mvec|BrokenLocale|thread_db|nsl|nss_.*))\.so'
of_driver='^lib(cuda\.so|nvidia)'
# CUDA's toolkit: 1 GB when packed, and often there already.
of_toolkit='^lib(cudart|cublas|cublasLt|nvrtc|nvrtc-builtins|nvJitLink|cudnn.*|cupti|nccl)\.so'

# needed FILE...: "NAME PATH" of the libraries that they load at their start, and those in turn; no path: not found
needed() { ldd "$@" 2> /dev/null | awk '$2 == "=>" { print $1, $3 == "not" ? "" : $3 }' | sort -u; }

# stage_libraries FOLDER WITH_CUDA FILE...: links what the files need; names on stdout what is not found
stage_libraries() {
  local folder=$1 with_cuda=$2 name path absent=()
  shift 2
  while read -r name path; do
    if [[ "$name" =~ $of_glibc || "$name" =~ $of_driver ]]; then continue; fi
    if [[ "$with_cuda" = 0 && "$name" =~ $of_toolkit ]]; then continue; fi
    if [ -z "$path" ]; then absent+=("$name"); else ln -sfn "$path" "$folder/$name"; fi
  done < <(needed "$@")
  for name in "${absent[@]}"; do
    [ -e "$folder/$name" ] || echo "$name"  # one file may say where it is, another not
  done
}

# toolkit_places FOLDER: where the linked libraries of CUDA are, and where the loader looks
toolkit_places() {
  local file
  for file in "$1"/*; do
    if [[ "${file##*/}" =~ $of_toolkit ]]; then dirname "$(readlink "$file")"; fi
  done | sort -u
  tr ':' '\n' <<< "${LD_LIBRARY_PATH:-}"
  PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2> /dev/null | sed -n 's/.*libnccl\.so\.2 .*=> \(.*\)\/.*/\1/p'
}

# stage_opened FOLDER: links the libraries of CUDA that are opened by name when they are used, from beside those
# that are linked already and from the library path; names on stdout what is not found
stage_opened() {
  local folder=$1 places place pattern file found
  mapfile -t places < <(toolkit_places "$folder")
  for pattern in 'libnvrtc-builtins.so.*' 'libcudnn_*.so.9' libnccl.so.2; do
    found=0
    for place in "${places[@]}"; do
      # shellcheck disable=SC2086 # a pattern
      for file in "$place"/$pattern; do
        [ -e "$file" ] || continue
        found=1
        ln -sfn "$file" "$folder/${file##*/}"
        stage_libraries "$folder" 1 "$file"
      done
      [ "$found" = 0 ] || break
    done
    [ "$found" = 1 ] || echo "$pattern"
  done
}

# whole BUILD: whether all that is needed is there, and of one state of the interface to the plugin, which every
# program has as text (device/cuda/plugin.h). Returns the exit code.
whole() {
  local build=$1 binary interface
  for binary in "${binaries[@]}"; do
    [ -e "$build/$binary" ] && continue
    echo "gpu-check: $build has no $binary; make it: cmake --build $build --target ${targets[*]}" >&2
    return 2
  done
  interface=$(grep -aoE '[0-9]+\.[0-9]+\.[0-9]+-[0-9a-f]{12}' "$build/bin/libmeshwright_cuda.so" | head -n 1)
  for binary in "${binaries[@]}"; do
    grep -aqF -e "${interface:-no interface}" "$build/$binary" && continue
    echo "gpu-check: $build/$binary is of another state than the plugin; cmake --build $build --target ${targets[*]}" >&2
    return 1
  done
}

# pack FILE BUILD WITH_CUDA STAGE: writes FILE by way of the empty folder STAGE. Returns the exit code.
pack() {
  local file=$1 build=$2 with_cuda=$3 stage=$4 binary files=() missing
  whole "$build" || return
  tools/make-corpus.sh runs/data/corpus.txt >&2 || return 1
  mkdir "$stage"/{bin,tests,lib,data}
  ln -s "$PWD/runs/data/corpus.txt" "$stage/data/corpus.txt"
  for binary in "${binaries[@]}" bin/libmw_gpu_trace.so; do
    [ -e "$build/$binary" ] || continue
    ln -s "$build/$binary" "$stage/$binary"
    files+=("$build/$binary")
  done
  missing=$(stage_libraries "$stage/lib" "$with_cuda" "${files[@]}")
  if [ -n "$missing" ]; then
    echo "gpu-check: not found: ${missing//$'\n'/ }" >&2
    return 1
  fi
  if [ "$with_cuda" = 1 ]; then
    missing=$(stage_opened "$stage/lib")
    [ -z "$missing" ] || echo "gpu-check: packed without ${missing//$'\n'/ }" >&2
  fi
  tar -C "$stage" -chzf "$file.part" bin tests lib data && mv "$file.part" "$file" || return 1
  echo "$file: $(du -h "$file" | cut -f 1), $(find "$stage/lib" -type l | wc -l) libraries"
}
