#include "ir/parallel_pins.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/text.h"

namespace meshwright::ir {
namespace {

using P = ParallelSpec;

constexpr bool kOfLayout = true;

// In the order in which reports try to take pins back.
constexpr std::array kPins = {
    Pin{"recompute", "activation_checkpoint.mode", &P::recompute, "auto"},
    Pin{"zero", "parallelism.zero_stage", &P::zero, "-1", kOfLayout},
    Pin{"zero_shard", "parallelism.data_parallel_shard_degree", &P::zero_shard, nullptr, kOfLayout},
    Pin{"zero_gradients", "parallelism.zero_gradients_degree", &P::zero_gradients, nullptr,
        kOfLayout},
    Pin{"zero_weights", "parallelism.zero_weights_degree", &P::zero_weights, nullptr, kOfLayout},
    Pin{"zero_min_bytes", "parallelism.zero_min_weight_bytes", &P::zero_min_bytes},
    Pin{"sequence_parallel", "parallelism.enable_sequence_parallel", &P::sequence_parallel, "auto",
        kOfLayout},
    Pin{"microbatches", "parallelism.pipeline_parallel_microbatches", &P::microbatches, "0",
        kOfLayout},
    Pin{"schedule", "parallelism.pipeline_parallel_schedule", &P::schedule, "auto", kOfLayout},
    Pin{"tensor", "parallelism.tensor_parallel_degree", &P::tensor, "0", kOfLayout},
    Pin{"expert", "parallelism.expert_parallel_degree", &P::expert, "0", kOfLayout},
    Pin{"expert_dispatch", "parallelism.expert_parallel_dispatch", &P::expert_dispatch},
    Pin{"expert_chunks", "parallelism.expert_parallel_chunks", &P::expert_chunks},
    Pin{"tensor_chunks", "parallelism.tensor_parallel_chunks", &P::tensor_chunks},
    Pin{"context", "parallelism.context_parallel_degree", &P::context, "0", kOfLayout},
    Pin{"pipeline", "parallelism.pipeline_parallel_degree", &P::pipeline, "0", kOfLayout},
    Pin{"data", "parallelism.data_parallel_replicate_degree", &P::data, "0", kOfLayout},
    Pin{"chunks", "parallelism.pipeline_parallel_chunks", &P::chunks, "0", kOfLayout},
    Pin{"part_layers", "parallelism.pipeline_parallel_layers", &P::part_layers, ""},
    Pin{"stage_meshes", "parallelism.pipeline_parallel_meshes", &P::stage_meshes, "", kOfLayout},
    Pin{"tensor_axes", "parallelism.tensor_parallel_axes", &P::tensor_axes, "", kOfLayout},
    Pin{"context_attention", "parallelism.context_parallel_attention", &P::context_attention},
    Pin{"recompute_layers", "activation_checkpoint.layers", &P::recompute_layers},
    Pin{"shardings", "parallelism.shardings", &P::shardings},
    Pin{"sharding_pins", "parallelism.sharding_pins", &P::sharding_pins},
    Pin{"bucket_bytes", "parallelism.gradient_bucket_bytes", &P::bucket_bytes},
    Pin{"overlap", "parallelism.overlap", &P::overlap},
    Pin{"head_block_tokens", "parallelism.head_block_tokens", &P::head_block_tokens},
    Pin{"optimizer_memory", "parallelism.optimizer_memory", &P::optimizer_memory},
    Pin{"weights_memory", "parallelism.weights_memory", &P::weights_memory},
    Pin{"gradients_memory", "parallelism.gradients_memory", &P::gradients_memory},
    Pin{"activations_memory", "parallelism.activations_memory", &P::activations_memory},
    Pin{"offload_chunk_bytes", "parallelism.offload_chunk_bytes", &P::offload_chunk_bytes},
    Pin{"host_update", "parallelism.host_update_percent", &P::host_update},
    Pin{"device", "parallelism.device", &P::device},
};

// Values are one line each.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size();
    if (escape) ++i;
    out += escape && text[i] == 'n' ? '\n' : text[i];
  }
  return out;
}

Status BadText(const Pin& pin, std::string_view text) {
  return InvalidArgument(fmt::format("{} is '{}', which it cannot be", pin.name, text));
}

Status Set(const Pin& pin, std::string_view text, int64_t& value) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end ? OkStatus() : BadText(pin, text);
}

Status Set(const Pin&, std::string_view text, std::string& value) {
  value = text;
  return OkStatus();
}

Status Set(const Pin& pin, std::string_view text, std::optional<bool>& value) {
  value.reset();
  if (text == "on" || text == "off") value = text == "on";
  return value || text == "auto" ? OkStatus() : BadText(pin, text);
}

std::string Text(int64_t value) { return std::to_string(value); }
std::string Text(const std::string& value) { return value; }
std::string Text(const std::optional<bool>& value) {
  if (!value) return "auto";
  return *value ? "on" : "off";
}

}  // namespace

std::span<const Pin> Pins() { return kPins; }

std::string PinText(const Pin& pin, const ParallelSpec& spec) {
  return std::visit([&](auto member) { return Text(spec.*member); }, pin.member);
}

Status SetPin(const Pin& pin, std::string_view text, ParallelSpec& spec) {
  return std::visit([&](auto member) { return Set(pin, text, spec.*member); }, pin.member);
}

void CopyPin(const Pin& pin, const ParallelSpec& from, ParallelSpec& to) {
  std::visit([&](auto member) { to.*member = from.*member; }, pin.member);
}

std::string FormatPins(const ParallelSpec& spec) {
  std::string text;
  for (const Pin& pin : kPins) {
    text += fmt::format("{}={}\n", pin.name, Escaped(PinText(pin, spec)));
  }
  return text;
}

Result<ParallelSpec> ParsePins(std::string_view text) {
  ParallelSpec spec;
  for (const std::string& line : Split(text, '\n')) {
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    const Pin* known = nullptr;
    for (const Pin& pin : kPins) {
      if (std::string_view(line).substr(0, equals) == pin.name) known = &pin;
    }
    if (known == nullptr || equals == std::string::npos) {
      return Fail(InvalidArgument(fmt::format("'{}' is no pin of a plan", line)));
    }
    MW_TRY(SetPin(*known, Unescaped(std::string_view(line).substr(equals + 1)), spec));
  }
  return spec;
}

}  // namespace meshwright::ir
