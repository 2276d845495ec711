# How fast kernels and steps are, PyTorch's steps in turn with ours, for tools/gpu-check: that sets $out, $quick,
# $rounds and $python.
# shellcheck shell=bash disable=SC2154

kernels() {
  local job error flags=()
  [ "$quick" = 0 ] || flags=(--quick)
  for job in gpt2-gpu llama-1b; do
    within 1800 "${ours[@]}" "$mw_bench" gpu-kernels "bench/jobs/$job.toml" "${flags[@]}" \
      > "$out/kernels-$job.jsonl" 2> "$out/kernels-$job.log"
    error=$(why $? "$out/kernels-$job.log")
    keep "$out/kernels-$job.jsonl" "$job"
    [ -z "$error" ] || judge "kernels-$job" "$took_s" "$error"
  done
}

no_peer=      # why PyTorch is not compared with
broken_peer=  # why it cannot be, though it is there
find_peer() {
  local log=$out/pytorch.log status
  within 300 "$python" -c '
import importlib.util, sys
if importlib.util.find_spec("torch") is None:
    print("has no PyTorch")
    sys.exit(3)
import torch
if not torch.cuda.is_available():
    print("has PyTorch", torch.__version__ + ", which finds no GPU")
    sys.exit(3)' > "$log" 2>&1
  status=$?
  case $status in
    0) ;;
    3) no_peer="$python $(tail -n 1 "$log")" ;;
    126 | 127) no_peer="$python cannot be started" ;;
    *) broken_peer=$(why $status "$log") ;;
  esac
}

# our_round JOB, their_round JOB: a measurement more in $out/step-JOB.jsonl or $out/peer-JOB.jsonl; what fails is not
# tried again, and fails the case (our_error, their_error). Ours fails where there is nothing to go on with.
our_round() {
  within 1800 "${ours[@]}" "$mw_bench" gpu-step "bench/jobs/$1.toml" --steps "$steps" \
    >> "$out/step-$1.jsonl" 2> "$out/step-$1.log"
  our_error=$(why $? "$out/step-$1.log")
  our_s=$took_s
  [ -z "$our_error" ]
}
their_round() {
  [ -z "$no_peer$their_error" ] || return 0
  within 1800 env -C bench/peers PYTHONDONTWRITEBYTECODE=1 "$python" pytorch_gpu.py "$1" --steps "$steps" \
    >> "$out/peer-$1.jsonl" 2> "$out/peer-$1.log"
  their_error=$(why $? "$out/peer-$1.log")
}

# step JOB RATIO_TARGET MFU_TARGET: rounds of ours and PyTorch's in turn
step() {
  local job=$1 steps=20 round our_error='' our_s=0 their_error=$broken_peer us
  [ "$quick" = 0 ] || steps=2
  : > "$out/step-$job.jsonl"
  : > "$out/peer-$job.jsonl"
  for ((round = 0; round < rounds; round++)); do
    if ((round % 2 == 0)); then our_round "$job" && their_round "$job"; else their_round "$job"; our_round "$job"; fi ||
      break
  done
  us=$(grep '"unit":"tokens/s"' "$out/step-$job.jsonl" | values_of value | median)
  [ -n "$our_error$us" ] || our_error="no tokens/s in $out/step-$job.jsonl"
  if [ -n "$our_error" ]; then
    judge "step-$job" "$our_s" "$our_error"
    return
  fi
  say_step "$job" "$us" "$2"
  say_mfu "$job" "$3"
  say_idle "$job"
}

# values_of NAME: of the lines on stdin
values_of() { sed -n -E "s/.*\"$1\": ?([^,}]*).*/\\1/p"; }

# say_step JOB TOKENS_PER_S RATIO_TARGET
say_step() {
  local job=$1 us=$2 want=$3 theirs=$out/peer-$1.jsonl them ratio line none='"pytorch":null,"ratio":null'
  line="{\"case\":\"step-$job\",\"value\":$us,\"unit\":\"tokens/s\",\"rounds\":$rounds"
  line+=",\"device\":\"$(field device "$out/step-$job.jsonl")\",\"target\":\"ratio >= $want\""
  if [ -n "$no_peer" ]; then
    say "$line,$none,\"met\":null,\"skipped\":$(quoted "$no_peer")}"
    return
  fi
  them=$(values_of tokens_per_s < "$theirs" | median)
  [ -n "$their_error$them" ] || their_error="no tokens_per_s in $theirs"
  if [ -n "$their_error" ]; then
    say "$line,$none,\"met\":false,\"error\":$(quoted "PyTorch: $their_error"),\"log\":\"$out/peer-$job.log\"}"
    return
  fi
  ratio=$(quotient "$us" "$them")
  line+=",\"pytorch\":$them,\"torch\":\"$(field torch "$theirs")\""
  say "$line,\"ratio\":$ratio,\"met\":$(compares "$ratio" '>=' "$want")}"
}

# say_mfu JOB TARGET: the model's FLOPs against the rate of products; no target: 0
say_mfu() {
  local job=$1 want=$2 flops peak share target=null met=null
  flops=$(values_of model_tflop_per_s < "$out/step-$job.jsonl" | median)
  peak=$(grep '"case":"gpu-matmul-bf16"' "$out/kernels-$job.jsonl" | values_of value | median)
  if [ -z "$flops" ] || [ -z "$peak" ]; then
    say "{\"case\":\"mfu-$job\",\"skipped\":\"no rate of matrix products or none of the model\"}"
    return
  fi
  share=$(quotient "$flops" "$peak")
  if [ "$want" != 0 ]; then
    target="\">= $want of the measured rate of matrix products\""
    met=$(compares "$share" '>=' "$want")
  fi
  say "{\"case\":\"mfu-$job\",\"value\":$share,\"unit\":\"of $peak TFLOP/s\",\"target\":$target,\"met\":$met}"
}

# say_idle JOB: the part of a step without a kernel or copy, of the last round that was traced
say_idle() {
  local job=$1 lines=$out/idle-$1.jsonl value met note line
  line="{\"case\":\"idle-$job\",\"unit\":\"of the step\""
  grep '"unit":"of the step"' "$out/step-$job.jsonl" > "$lines"
  value=$(field idle "$lines")
  met=$(field met "$lines")
  if is_number "$value" && [[ "$met" =~ ^(true|false)$ ]]; then
    line+=",\"value\":$value,\"target\":\"$(field target "$lines")\",\"met\":$met"
    say "$line,\"kernels_and_copies\":$(field kernels_and_copies "$lines")}"
  else
    note=$(field idle_note "$lines")
    say "$line,\"value\":null,\"target\":null,\"met\":null,\"note\":\"${note:-nothing was traced}\"}"
  fi
}

steps() {
  find_peer
  step gpt2-gpu 1.1 0
  step llama-1b 1.0 0.5
}
