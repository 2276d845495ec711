# Of the lines of tools/gpu-check the table that docs/performance.md has of GPUs.

# The value of a name in this line as it is written, without quotes; "" when there is none.
function field(name,   rest) {
  if (!match($0, "\"" name "\":")) return ""
  rest = substr($0, RSTART + RLENGTH)
  if (rest ~ /^"/) {
    match(rest, /^"([^"\\]|\\.)*"/)
    return unescaped(substr(rest, 2, RLENGTH - 2))
  }
  match(rest, /^[^,}]*/)
  return substr(rest, 1, RLENGTH)
}
function unescaped(text) {
  gsub(/\\"/, "\"", text)
  gsub(/\\\\/, "\\", text)
  gsub(/\|/, "/", text)  # ends a cell
  return text
}
function percent(share) { return sprintf("%.3g %%", 100 * share) }
function listed(list, more) { return list == "" || more == "" ? list more : list "; " more }
function missed() { return field("met") == "false" ? " (not met)" : "" }

# What a line says instead of a figure.
function reason() {
  if (field("error") != "") return "failed: " field("error")
  if (field("skipped") != "") return "skipped: " field("skipped")
  return field("note") != "" ? "not measured: " field("note") : "not measured"
}

{ name = field("case") }
name == "quick" { quick = 1 }
name == "gpu" { no_gpu = field("skipped") }
name == "gpu-check" { ended = 1 }
name == "first-kernels" { device = field("device"); date = field("date") }
field("target") == "passes" {
  passes++
  if (field("met") == "true") passed++
  else failures = listed(failures, name ": " field("error"))
}
name ~ /^(suite|sanitizer)/ && field("skipped") != "" { failures = listed(failures, name ": " reason()) }
name ~ /^step-/ {
  if (field("unit") != "tokens/s") {
    result[name] = reason()
    next
  }
  ratio = field("ratio") ~ /^[0-9]/ ? sprintf("%.3g x PyTorch %s", field("ratio"), field("torch")) : "ratio " reason()
  result[name] = sprintf("%.0f tokens/s, %s%s", field("value"), ratio, missed())
}
name ~ /^mfu-/ {
  result[name] = field("value") == "" ? reason() : percent(field("value")) " " field("unit") missed()
}
name ~ /^idle-/ {
  text = field("value") ~ /^[0-9]/ ? percent(field("value")) missed() : reason()
  idle = listed(idle, substr(name, 6) ": " text)
}
name == "gpu-kernel" && field("met") ~ /true|false/ {
  kernels++
  if (field("met") == "true") fast++
  if (worst == "" || field("share_of_limit") + 0 < worst) {
    worst = field("share_of_limit") + 0
    slowest = field("kind") " of " field("job")
  }
}
name ~ /^loss-/ { result[name] = field("value") ~ /^[0-9]/ ? field("value") missed() : reason() }
name == "training" { result["loss-gpu-f32"] = result["loss-gpu-bf16"] = reason() }

function row(what, command, target, measured) {
  printf "| %s | %s | %s | %s |\n", what, command, target, measured == "" ? "not measured" : measured
}

END {
  if (no_gpu != "") {
    print "no GPU was found: " no_gpu
    exit
  }
  printf "Measured on %s, on %s.%s%s\n\n", date, device, quick ? " It was --quick: no figure counts." : "",
    ended ? "" : " It was ended before all was measured."
  print "| case | command of it | target | measured |"
  print "|---|---|---|---|"
  row("what has to pass: suites, compute-sanitizer, training", "`tools/gpu-check`", "all pass",
      sprintf("%d of %d%s", passed, passes, failures == "" ? "" : "; " failures))
  row("GPT-2 124M, sequences of 1,024, batch 32, bf16", "`mw_bench gpu-step bench/jobs/gpt2-gpu.toml`",
      ">= 1.1 x PyTorch (fused attention, torch.compile, fused AdamW)", result["step-gpt2-gpu"])
  row("LLaMA 1.3B, sequences of 2,048, bf16, no recomputation", "`mw_bench gpu-step bench/jobs/llama-1b.toml`",
      ">= 1.0 x PyTorch, >= 50 % of the measured rate of matrix products",
      listed(result["step-llama-1b"], result["mfu-llama-1b"]))
  row("memory-bound kernels of 16 MiB and more", "`mw_bench gpu-kernels JOB`",
      ">= 85 % of the measured rate of a copy",
      kernels ? sprintf("%d of %d, the slowest %s (%s)", fast, kernels, percent(worst), slowest) : "")
  row("gaps: no kernel and no copy runs (CUPTI)", "`mw_bench gpu-step JOB`", "<= 2 % of a step", idle)
  row("loss of the GPT of `./run`, f32, 20 steps", "`tools/gpu-check`", "within 1e-4 of a CPU device's",
      result["loss-gpu-f32"])
  row("the same, bf16, 200 steps, mean of the last 50", "`tools/gpu-check`",
      "within 2 % of f32 on a CPU device", result["loss-gpu-bf16"])
}
