# What tools/gpu-check has run on GPUs: the suites and the GPT of ./run. It sets $build, $out and $quick.
# shellcheck shell=bash disable=SC2154

meshwright=$build/bin/meshwright
mw_bench=$build/bin/mw_bench
# Libraries that were carried are for our programs only: Python and the system's tools have their own.
ours=(env)
if [ -d "$build/lib" ]; then ours+=("LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"); fi
if [ -z "${MESHWRIGHT_CUDA_PLUGIN:-}" ]; then ours+=("MESHWRIGHT_CUDA_PLUGIN=$build/bin/libmeshwright_cuda.so"); fi

# first_kernels: whether anything runs at all. Ends the script where there is no GPU or nothing can be loaded.
first_kernels() {
  local lines=$out/first.jsonl log=$out/first-kernels.log status error
  local line='{"case":"first-kernels","target":"passes"'
  within 600 "${ours[@]}" "$mw_bench" gpu-kernels bench/jobs/small.toml --quick > "$lines" 2> "$log"
  status=$?
  case $status in
    0)
      say "$line,\"met\":true,\"device\":\"$(field device "$lines")\",\"date\":\"$(date +%F)\"}"
      return
      ;;
    3) error="\"$(field skipped "$lines")\"" ;;
    *) error=$(quoted "$(why $status "$log")") ;;
  esac
  case "$status:$error" in
    3:*'shows no GPU'* | 3:*'no NVIDIA driver'*) say "{\"case\":\"gpu\",\"skipped\":$error}"; finish 3 ;;
  esac
  say "$line,\"met\":false,\"error\":$error,\"log\":\"$log\"}"
  case $status in 3 | 126 | 127) finish 1 ;; esac
}

# ---- suites ----
# on_gpus CASE SECONDS PROGRAM FILTER [TOOL...]: a program of tests on the GPUs of this machine instead of emulated
# ones (tests/machine_gpu.h)
on_gpus() {
  local name=$1 limit=$2 program=$3 filter=$4
  shift 4
  if [ ! -x "$build/tests/$program" ]; then
    say "{\"case\":\"$name\",\"skipped\":\"$program is not in the build\"}"
    return
  fi
  tests_pass "$name" "$limit" "${ours[@]}" MESHWRIGHT_TEST_GPU=machine "$@" "$build/tests/$program" \
    --gtest_filter="$filter"
}

# What is of CPUs alone is left out, and what compiles generated kernels for the host: there may be no compiler here.
suites() {
  on_gpus suite-device 600 conformance_device_test '*/Gpu'
  on_gpus suite-ops 1800 conformance_ops_test '-*CudaLibraries.*:*CudaFused.*:*OpTable*:EinsumProperty.*'
  on_gpus suite-collective 1800 conformance_collective_test '*Nccl*'
  on_gpus suite-jobs 1800 virtual_test 'Gpus.*'
}

find_sanitizer() {
  local nvcc place
  command -v compute-sanitizer && return
  nvcc=$(command -v nvcc) && nvcc=$(dirname "$(readlink -f "$nvcc")")
  for place in ${nvcc:+"$nvcc"} /usr/local/cuda/bin; do
    [ ! -x "$place/compute-sanitizer" ] || { echo "$place/compute-sanitizer"; return; }
  done
}

# Our kernels in f32; in bf16 the tiles of attention and of the head, and products with what follows them.
sanitizers() {
  local sanitizer tool
  sanitizer=$(find_sanitizer)
  if [ -z "$sanitizer" ]; then
    say '{"case":"sanitizer","skipped":"compute-sanitizer is neither on the PATH nor beside nvcc nor in /usr/local/cuda/bin"}'
    return
  fi
  for tool in memcheck racecheck synccheck; do
    on_gpus "sanitizer-$tool" 3600 conformance_ops_test \
      '*GpuTable.F32*:*GpuShapes.*:*GpuTable.Bf16*/attention*:*GpuTable.Bf16*/head_loss*:*GpuTable.Bf16*/fused_product*' \
      "$sanitizer" --tool "$tool" --error-exitcode 9
  done
}

# ---- the GPT of ./run ----
cluster=  # the folder of one that may be up
stop_cluster() {
  [ -n "$cluster" ] || return 0
  timeout -k 10 60 "${ours[@]}" "$meshwright" down --dir "$cluster" > /dev/null 2>&1
  cluster=
}

trained=  # names
# train NAME DEVICE DTYPE STEPS: losses into $out/NAME.jsonl
train() {
  local name=$1 device=$2 dtype=$3 steps=$4 log=$out/train-$1.log began=$SECONDS status error
  local layout=(--set parallelism.data_parallel_replicate_degree=1 --set parallelism.tensor_parallel_degree=1
    --set parallelism.pipeline_parallel_degree=1 --set validation.batches=0 --set checkpoint.last_save=false)
  rm -f "$out/$name.jsonl"
  cluster=$out/cluster-$name
  stop_cluster
  cluster=$out/cluster-$name
  within 120 "${ours[@]}" "$meshwright" up --workers 1 --devices-per-worker 1 --device "$device" --dir "$cluster" \
    --port 0 --metrics-port 0 > "$log" 2>&1
  status=$?
  if [ $status = 0 ]; then
    within 3600 "${ours[@]}" "$meshwright" submit examples/gpt-bytes.toml "${layout[@]}" \
      --address "$(awk '$1 == "address" { print $2 }' "$cluster/cluster.txt")" --set training.steps="$steps" \
      --set training.dtype="$dtype" --record "$out/$name.jsonl" >> "$log" 2>&1
    status=$?
  fi
  error=$(why $status "$log")
  stop_cluster
  [ -n "$error" ] || trained+=" $name "
  judge "train-$name" $((SECONDS - began)) "$error" ",\"steps\":$steps"
}

# losses NAME FIRST LAST: of those steps, a line each, as they are written
losses() { sed -n -E 's/.*"loss": ?([^,}]*).*/\1/p' "$out/$1.jsonl" 2> /dev/null | sed -n "$2,$3p"; }

# difference NAME FIRST LAST KIND: of those steps' losses to f32 on the CPU, relative: the largest (KIND each), or
# that of their means (means); where a loss is no number, which
difference() {
  paste <(losses cpu-f32 "$2" "$3") <(losses "$1" "$2" "$3") | awk -F '\t' -v first="$2" -v last="$3" -v kind="$4" '
    function is_number(x) { return x ~ /^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$/ }
    function distance(x, y) { return x == y ? 0 : x == 0 ? 1 : ((y - x) / x < 0 ? (x - y) / x : (y - x) / x) }
    !is_number($1) || !is_number($2) {
      wrong = sprintf("losses of step %d: \"%s\" on the CPU, \"%s\" on the GPU", first + NR - 1, $1, $2)
      exit
    }
    { a += $1; b += $2; d = distance($1, $2); if (d > most) most = d }
    END {
      if (wrong == "" && NR != last - first + 1) wrong = sprintf("%d losses of %d steps", NR, last - first + 1)
      if (wrong != "") print wrong; else printf "%.3g\n", kind == "each" ? most : distance(a, b)
    }'
}

# loss NAME FIRST LAST KIND TARGET WHAT
loss() {
  local target=$5 found line
  if [[ "$trained" != *' cpu-f32 '* || "$trained" != *" $1 "* ]]; then
    say "{\"case\":\"loss-$1\",\"skipped\":\"a training failed\"}"
    return
  fi
  found=$(difference "$1" "$2" "$3" "$4")
  line="{\"case\":\"loss-$1\",\"unit\":\"$6\",\"target\":\"<= $target\",\"steps\":$3"
  if is_number "$found"; then
    say "$line,\"value\":$found,\"met\":$(compares "$found" '<=' "$target")}"
  else
    say "$line,\"value\":null,\"met\":false,\"error\":$(quoted "$found")}"
  fi
}

training() {
  local steps=200 error
  [ "$quick" = 0 ] || steps=20
  # A packed build brings the text along.
  if [ -f "$build/data/corpus.txt" ]; then mkdir -p runs/data && cp "$build/data/corpus.txt" runs/data/corpus.txt; fi
  within 300 tools/make-corpus.sh runs/data/corpus.txt > "$out/corpus.log" 2>&1
  error=$(why $? "$out/corpus.log")
  if [ -n "$error" ]; then
    judge corpus "$took_s" "$error"
    say '{"case":"training","skipped":"there is no text to train on"}'
    return
  fi
  train cpu-f32 cpu float32 "$steps"
  train gpu-f32 cuda float32 "$steps"
  train gpu-bf16 cuda bfloat16 "$steps"
  loss gpu-f32 1 20 each 1e-4 'largest relative difference to f32 on the CPU'
  # Of means, as single steps of a bf16 curve scatter.
  loss gpu-bf16 $((steps * 3 / 4 + 1)) "$steps" means 0.02 \
    'relative difference of the mean loss of the last quarter to f32 on the CPU'
}
