// Weights, adapters, arrays, files of tokens, checkpoints.
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/digest.h"
#include "checkpoint/manifest.h"
#include "checkpoint/snapshot.h"
#include "data/npy_header.h"
#include "data/roots.h"
#include "data/token_headers.h"
#include "formats/adapters.h"
#include "formats/safetensors.h"
#include "formats/sharded_safetensors.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/target.h"

namespace meshwright::fuzz {
namespace {

Seeds SeedsOfSafetensors() {
  using formats::EncodeSafetensorsHeader;
  const std::vector<formats::TensorSpec> tensors = {{"wte.weight", {ir::DType::kF32, {8, 4}}},
                                                    {"h.0.attn.bias", {ir::DType::kBF16, {4}}},
                                                    {"scale", {ir::DType::kF64, {}}}};
  Seeds seeds;
  for (const auto& header :
       {Sure(EncodeSafetensorsHeader(tensors)),
        Sure(EncodeSafetensorsHeader({tensors[0]}, {{"adapter", "{\"r\":1}"}})),
        Sure(EncodeSafetensorsHeader({}))}) {
    const int64_t bytes =
        header.header.entries.empty() ? 0 : header.header.entries.back().end_bytes;
    seeds.push_back(header.bytes + std::string(static_cast<size_t>(bytes), 'w'));
  }
  return seeds;
}

void RunSafetensors(std::string_view input) {
  const auto header =
      formats::ParseSafetensorsHeader(BytesOf(input), static_cast<int64_t>(input.size()));
  if (!header.has_value()) return;
  for (const formats::SafetensorsEntry& entry : header->entries) {
    MW_CHECK(entry.begin_bytes >= 0 && entry.begin_bytes <= entry.end_bytes &&
             header->data_begin_bytes + entry.end_bytes <= static_cast<int64_t>(input.size()))
        << entry.name << " lies beyond its file";
  }
}

std::string NpyOf(const std::string& dict, size_t data) {
  std::string header = dict;
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string file = "\x93NUMPY";
  file += std::string("\x01\0", 2);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  return file + header + std::string(data, 'd');
}

void RunNpy(std::string_view input) {
  const auto header = data::ParseNpyHeader(BytesOf(input), static_cast<int64_t>(input.size()));
  if (!header.has_value()) return;
  MW_CHECK(header->data_begin_bytes <= static_cast<int64_t>(input.size()))
      << "data begin behind the file";
}

Seeds SeedsOfLlmc() {
  Seeds seeds;
  for (const auto& [magic, version, width] :
       {std::array<int32_t, 3>{20240520, 1, 2}, std::array<int32_t, 3>{20240801, 7, 4}}) {
    std::array<int32_t, 256> header{};
    header[0] = magic;
    header[1] = version;
    header[2] = 10;
    std::string file(reinterpret_cast<const char*>(header.data()), sizeof header);
    seeds.push_back(file + std::string(static_cast<size_t>(10 * width), 't'));
  }
  return seeds;
}

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string MegatronIndex() {
  std::string file("MMIDIDX\0\0", 9);
  Append<uint64_t>(file, 1);
  file += '\x08';  // uint16
  Append<uint64_t>(file, 2);
  Append<uint64_t>(file, 3);
  for (const int32_t length : {3, 5}) Append(file, length);
  for (const int64_t offset : {0, 6}) Append(file, offset);
  for (const int64_t end : {0, 1, 2}) Append(file, end);
  return file;
}

Seeds SeedsOfAdapters() {
  formats::AdapterConfig config;
  config.lora.rank = 8;
  config.lora.alpha = 16;
  config.lora.target_modules = {"c_attn", "mlp.*"};
  config.base_model = "gpt2";
  Seeds seeds = {formats::FormatAdapterConfig(config)};
  config.fan_in_fan_out = true;
  seeds.push_back(formats::FormatAdapterConfig(config));
  return seeds;
}

checkpoint::Manifest StoredManifest() {
  checkpoint::Manifest manifest;
  manifest.step = 120;
  manifest.job_id = 7;
  manifest.job_name = "gpt";
  manifest.layout = "data=2";
  manifest.cause = "interval";
  manifest.files = {{"sharded/shard-00001.safetensors", 4096}};
  const std::string zeros(128, '\0');
  checkpoint::StoredTensor tensor{{ir::DType::kF32, {8, 4}}, ir::MemoryKind::kWeights, {}};
  tensor.boxes.push_back({{{0, 0}, {8, 4}}, 0, 512, checkpoint::PieceDigests(BytesOf(zeros))});
  manifest.tensors.emplace("wte.weight", tensor);
  return manifest;
}

void RunStored(std::string_view input) {
  ExpectStable(input, checkpoint::ParseManifest, checkpoint::FormatManifest);
  ExpectStable(input, checkpoint::ParseShards, checkpoint::FormatShards);
  (void)checkpoint::ParseDigest(input);
}

// The digest of a manifest keeps mutations out of what is behind it: it is made right again.
void RunSignedManifest(std::string_view input) {
  RunStored(input);
  auto body = nlohmann::json::parse(
      input, [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth <= 64; },
      false);
  if (!body.is_object()) return;
  body.erase("digest");
  const std::string rest = body.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
  body["digest"] = checkpoint::ToText(checkpoint::DigestOf(rest));
  RunStored(body.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Seeds SeedsOfLayout() {
  checkpoint::SnapshotLayout layout;
  layout.Add("wte", {ir::DType::kF32, {8, 4}}, ir::MemoryKind::kWeights, {{0, 0}, {4, 4}});
  layout.Add("m.wte", {ir::DType::kBF16, {8}}, ir::MemoryKind::kWeights, {{4}, {4}});
  return {checkpoint::FormatLayout(layout)};
}

}  // namespace

std::vector<Target> FormatTargets() {
  const auto size = [](std::string_view input) { return static_cast<int64_t>(input.size()); };
  return {
      {"safetensors-header", "formats::ParseSafetensorsHeader", SeedsOfSafetensors, RunSafetensors},
      {"safetensors-index", "formats::ParseSafetensorsIndex",
       [] {
         return Seeds{R"({"metadata":{"total_size":96},"weight_map":{"a.b":"m-1-of-2.safetensors",)"
                      R"("c":"m-2-of-2.safetensors"}})"};
       },
       [](std::string_view input) {
         const auto files = formats::ParseSafetensorsIndex(input);
         if (!files.has_value()) return;
         for (const auto& [tensor, file] : *files) {
           MW_CHECK(file.find('/') == std::string::npos && file != "..") << "leaves the folder";
         }
       }},
      {"adapter-config", "formats::ParseAdapterConfig", SeedsOfAdapters,
       [](std::string_view input) {
         ExpectStable(input, formats::ParseAdapterConfig, formats::FormatAdapterConfig);
       }},
      {"npy-header", "data::ParseNpyHeader",
       [] {
         return Seeds{NpyOf("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }", 32),
                      NpyOf("{'descr': '|u1', 'fortran_order': False, 'shape': (7,), }", 7),
                      NpyOf("{'shape': (), 'fortran_order': False, 'descr': '<i8'}", 8)};
       },
       RunNpy},
      {"llmc-header", "data::ParseLlmcHeader", SeedsOfLlmc,
       [size](std::string_view input) {
         const auto range = data::ParseLlmcHeader(BytesOf(input), size(input));
         if (!range.has_value()) return;
         MW_CHECK(range->tokens >= 0 && range->begin_bytes + range->tokens <= size(input))
             << "tokens beyond the file";
       }},
      {"megatron-index", "data::ParseMegatronIndex", [] { return Seeds{MegatronIndex()}; },
       [](std::string_view input) { (void)data::ParseMegatronIndex(BytesOf(input), 16); }},
      {"data-root", "data::ParseRoot, AbsolutePath, PathBelow",
       [] {
         return Seeds{"/data", "corpora=/mnt/c", "../a/./b//c"};
       },
       [](std::string_view input) {
         (void)data::ParseRoot(input);
         const std::string path = data::AbsolutePath("/root/" + std::string(input));
         MW_CHECK(data::AbsolutePath(path) == path) << path;
         (void)data::PathBelow("/root", path);
       }},
      {"manifest", "checkpoint::ParseManifest, ParseShards",
       [] {
         const auto manifest = StoredManifest();
         return Seeds{checkpoint::FormatManifest(manifest),
                      checkpoint::FormatShards({manifest.files, manifest.tensors})};
       },
       RunSignedManifest},
      {"snapshot-layout", "checkpoint::ParseLayout", SeedsOfLayout,
       [](std::string_view input) {
         ExpectStable(input, checkpoint::ParseLayout, checkpoint::FormatLayout);
       }},
  };
}

}  // namespace meshwright::fuzz
