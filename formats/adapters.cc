#include "formats/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/json_error.h"
#include "base/json_int.h"
#include "ir/element_value.h"

namespace meshwright::formats {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kMetadataKey[] = "adapter_config";
constexpr char kPrefix[] = "base_model.model.";
constexpr char kA[] = ".lora_A.weight";
constexpr char kB[] = ".lora_B.weight";

bool IsAdapterTensor(std::string_view name) {
  return name.starts_with(kPrefix) && (name.ends_with(kA) || name.ends_with(kB));
}

// Of an adapter's tensor, the weight that it belongs to.
std::string WeightOf(std::string_view name) {
  MW_CHECK(IsAdapterTensor(name)) << name << " is no tensor of an adapter";
  name.remove_prefix(std::string_view(kPrefix).size());
  name.remove_suffix(std::string_view(kA).size());
  return std::string(name) + ".weight";
}

// What would change the numbers and is not there.
Status RefuseOthers(const Json& json) {
  const auto refuse = [](const char* key, const std::string& value) {
    return Unimplemented(
        fmt::format("{} = {} is not supported: adapters are plain LoRA", key, value));
  };
  if (!json.contains("peft_type") || json["peft_type"] != "LORA") {
    return Unimplemented(
        fmt::format("peft_type is {}; only LORA is supported",
                    json.contains("peft_type") ? json["peft_type"].dump() : "not there"));
  }
  for (const char* key : {"use_dora", "lora_bias", "use_qalora"}) {
    if (json.contains(key) && json[key] == true) return refuse(key, "true");
  }
  for (const char* key : {"rank_pattern", "alpha_pattern"}) {
    if (json.contains(key) && json[key].is_object() && !json[key].empty()) {
      return refuse(key, json[key].dump());
    }
  }
  if (json.contains("bias") && json["bias"] != "none") return refuse("bias", json["bias"].dump());
  return OkStatus();
}

// A list of texts, or nothing where the key is absent or null.
Result<std::vector<std::string>> Texts(const Json& json, const char* key) {
  std::vector<std::string> texts;
  if (!json.contains(key) || json[key].is_null()) return texts;
  // One text is a regular expression, but for this one.
  if (json[key] == ir::kAllLinear) return std::vector<std::string>{ir::kAllLinear};
  if (json[key].is_string()) {
    return Fail(Unimplemented(fmt::format(
        "{} is the regular expression {}; write a list of modules", key, json[key].dump())));
  }
  if (!json[key].is_array()) return Fail(InvalidArgument(fmt::format("{} is no list", key)));
  for (const Json& each : json[key]) {
    if (!each.is_string()) return Fail(InvalidArgument(fmt::format("{} is no list of texts", key)));
    texts.push_back(each.get<std::string>());
  }
  return texts;
}

template <typename T>
Status Read(const Json& json, const char* key, T& at) {
  if (!json.contains(key) || json[key].is_null()) return OkStatus();
  if constexpr (JsonWhole<T>) {
    MW_ASSIGN_OR_RETURN(at, JsonInt<T>(json[key], key));
  } else {
    const bool fits = std::is_same_v<T, bool> ? json[key].is_boolean() : json[key].is_number();
    if (!fits) return InvalidArgument(fmt::format("{} is {}", key, json[key].dump()));
    at = json[key].get<T>();
  }
  return OkStatus();
}

bool MatchesModule(std::string_view tensor, const std::vector<std::string>& modules) {
  const std::string module = ir::ModuleOf(std::string(tensor));
  return std::any_of(modules.begin(), modules.end(), [&](const std::string& each) {
    return module == each || module.ends_with("." + each);
  });
}

// The entry of a model's weight, whose name may be without its first part.
const SafetensorsEntry* FindWeight(const SafetensorsFile& file, std::string_view name) {
  if (const SafetensorsEntry* entry = file.Find(name)) return entry;
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? nullptr : file.Find(name.substr(dot + 1));
}

Result<TensorSpec> SpecOf(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  if (entry.dtype) return TensorSpec{entry.name, {*entry.dtype, entry.shape}};
  return Fail(Unimplemented(fmt::format("tensor '{}' of {} is {}, which is not supported",
                                        entry.name, file.path(), entry.dtype_name)));
}

// Tensors that are written one after the other.
struct Part {
  TensorSpec spec;
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

Status WriteParts(const std::vector<Part>& parts, const std::string& path,
                  const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  for (const Part& part : parts) specs.push_back(part.spec);
  MW_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::Create(path, specs, metadata));
  for (const Part& part : parts) {
    MW_CHECK(part.file != nullptr && part.entry != nullptr) << part.spec.name;
    MW_TRY(writer->Write(part.spec.name, 0, part.file->data(*part.entry)));
  }
  return writer->Finish();
}

std::vector<double> Reals(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  const std::byte* data = file.data(entry).data();
  const int64_t bytes = ir::DTypeBytes(*entry.dtype);
  std::vector<double> values(static_cast<size_t>((entry.end_bytes - entry.begin_bytes) / bytes));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = ir::LoadElement(data + static_cast<int64_t>(i) * bytes, *entry.dtype);
  }
  return values;
}

// The two of a weight.
struct Pair {
  const SafetensorsEntry* a = nullptr;
  const SafetensorsEntry* b = nullptr;
};

class Merger {
 public:
  Merger(const SafetensorsFile& tuned, const AdapterConfig& config)
      : tuned_(tuned), scale_(config.lora.scale()), inputs_first_(config.fan_in_fan_out) {}

  Status Run(const std::string& path, std::optional<ir::DType> dtype) {
    MW_TRY(FindPairs());
    std::vector<TensorSpec> specs;
    for (const SafetensorsEntry& entry : tuned_.entries()) {
      if (IsAdapterTensor(entry.name)) continue;
      MW_ASSIGN_OR_RETURN(TensorSpec spec, SpecOf(tuned_, entry));
      if (dtype && ir::IsFloating(spec.type.dtype)) spec.type.dtype = *dtype;
      specs.push_back(std::move(spec));
    }
    MW_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::Create(path, specs));
    for (const TensorSpec& spec : specs) MW_TRY(WriteOne(*writer, spec));
    return writer->Finish();
  }

 private:
  Status FindPairs() {
    for (const SafetensorsEntry& entry : tuned_.entries()) {
      if (!IsAdapterTensor(entry.name)) continue;
      const SafetensorsEntry* weight = FindWeight(tuned_, WeightOf(entry.name));
      if (weight == nullptr) {
        return InvalidArgument(fmt::format("{}: '{}' has no weight '{}' to be added to",
                                           tuned_.path(), entry.name, WeightOf(entry.name)));
      }
      MW_TRY(SpecOf(tuned_, entry));
      Pair& pair = pairs_[weight->name];
      (entry.name.ends_with(kA) ? pair.a : pair.b) = &entry;
    }
    for (const auto& [name, pair] : pairs_) {
      if (pair.a != nullptr && pair.b != nullptr) continue;
      return InvalidArgument(
          fmt::format("{}: the adapter of '{}' is not whole", tuned_.path(), name));
    }
    return OkStatus();
  }

  Status WriteOne(SafetensorsWriter& writer, const TensorSpec& spec) const {
    const SafetensorsEntry* entry = tuned_.Find(spec.name);
    MW_CHECK(entry != nullptr) << spec.name;
    const auto pair = pairs_.find(spec.name);
    if (pair == pairs_.end() && spec.type.dtype == *entry->dtype) {
      return writer.Write(spec.name, 0, tuned_.data(*entry));
    }
    std::vector<double> values = Reals(tuned_, *entry);
    if (pair != pairs_.end()) MW_TRY(Add(*entry, pair->second, values));
    std::vector<std::byte> bytes(static_cast<size_t>(spec.type.bytes()));
    const int64_t size = ir::DTypeBytes(spec.type.dtype);
    for (size_t i = 0; i < values.size(); ++i) {
      ir::StoreElement(bytes.data() + static_cast<int64_t>(i) * size, spec.type.dtype, values[i]);
    }
    return writer.Write(spec.name, 0, bytes);
  }

  // values += scale * B A, turned where the weight lies as [in, out].
  Status Add(const SafetensorsEntry& weight, const Pair& pair, std::vector<double>& values) const {
    const bool matrices =
        weight.shape.size() == 2 && pair.a->shape.size() == 2 && pair.b->shape.size() == 2;
    const int64_t rank = matrices ? pair.a->shape[0] : 0;
    const int64_t in = matrices ? pair.a->shape[1] : 0;
    const int64_t out = matrices ? pair.b->shape[0] : 0;
    const bool as_out_in = weight.shape == ir::Dims{out, in};
    const bool as_in_out = weight.shape == ir::Dims{in, out};
    if (!matrices || pair.b->shape[1] != rank || (!as_out_in && !as_in_out)) {
      return InvalidArgument(fmt::format("{}: the adapter of '{}' does not fit its shape",
                                         tuned_.path(), weight.name));
    }
    const bool turned = as_in_out && (!as_out_in || inputs_first_);
    const std::vector<double> a = Reals(tuned_, *pair.a);
    const std::vector<double> b = Reals(tuned_, *pair.b);
    MW_CHECK(static_cast<int64_t>(a.size()) == rank * in) << a.size() << " elements of A";
    MW_CHECK(static_cast<int64_t>(b.size()) == out * rank) << b.size() << " elements of B";
    std::vector<double> row(static_cast<size_t>(in));
    for (int64_t o = 0; o < out; ++o) {
      std::fill(row.begin(), row.end(), 0.0);
      for (int64_t k = 0; k < rank; ++k) {
        const double factor = b[static_cast<size_t>(o * rank + k)];
        const double* of_a = a.data() + k * in;
        for (int64_t i = 0; i < in; ++i) row[static_cast<size_t>(i)] += factor * of_a[i];
      }
      for (int64_t i = 0; i < in; ++i) {
        const int64_t at = turned ? i * out + o : o * in + i;
        values[static_cast<size_t>(at)] += scale_ * row[static_cast<size_t>(i)];
      }
    }
    return OkStatus();
  }

  const SafetensorsFile& tuned_;
  const double scale_;
  const bool inputs_first_;
  std::map<std::string, Pair> pairs_;  // by the weight's name in the file
};

Result<AdapterConfig> RequireConfig(const SafetensorsFile& tuned) {
  MW_ASSIGN_OR_RETURN(const std::optional<AdapterConfig> config, AdapterConfigOf(tuned));
  if (config) return *config;
  return Fail(InvalidArgument(
      fmt::format("{} has no adapters: it is not what a job with lora.rank wrote", tuned.path())));
}

}  // namespace

Result<AdapterConfig> ParseAdapterConfig(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Fail(InvalidArgument("is " + WhyNoJsonObject(text)));
  MW_TRY(RefuseOthers(json));
  AdapterConfig config;
  MW_TRY(Read(json, "r", config.lora.rank));
  MW_TRY(Read(json, "lora_alpha", config.lora.alpha));
  MW_TRY(Read(json, "lora_dropout", config.lora.dropout));
  MW_TRY(Read(json, "use_rslora", config.lora.rank_stabilized));
  MW_TRY(Read(json, "fan_in_fan_out", config.fan_in_fan_out));
  MW_ASSIGN_OR_RETURN(config.lora.target_modules, Texts(json, "target_modules"));
  MW_ASSIGN_OR_RETURN(config.lora.modules_to_save, Texts(json, "modules_to_save"));
  if (config.lora.rank >= 1) return config;
  return Fail(InvalidArgument(fmt::format("r is {}; it must be at least 1", config.lora.rank)));
}

std::string FormatAdapterConfig(const AdapterConfig& config) {
  const ir::LoraSpec& lora = config.lora;
  const bool all = lora.target_modules == std::vector<std::string>{ir::kAllLinear};
  Json json = {
      {"base_model_name_or_path", config.base_model.empty() ? Json() : Json(config.base_model)},
      {"bias", "none"},
      {"fan_in_fan_out", config.fan_in_fan_out},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"lora_alpha", lora.alpha},
      {"lora_dropout", lora.dropout},
      {"modules_to_save", lora.modules_to_save.empty() ? Json() : Json(lora.modules_to_save)},
      {"peft_type", "LORA"},
      {"r", lora.rank},
      {"target_modules", all ? Json(ir::kAllLinear) : Json(lora.target_modules)},
      {"task_type", "CAUSAL_LM"},
      {"use_rslora", lora.rank_stabilized}};
  return json.dump(2) + "\n";
}

std::map<std::string, std::string> AdapterMetadata(const ir::Graph& model) {
  AdapterConfig config;
  for (const NodeId id : model.NodesOf(ir::Op::kParam)) {
    const ir::Attrs& attrs = model.node(id).attrs;
    if (attrs.Int(ir::kSavedAttr) != 0) {
      const std::string module = ir::ModuleOf(attrs.Str("export_name", attrs.Str("name")));
      std::vector<std::string>& saved = config.lora.modules_to_save;
      if (std::find(saved.begin(), saved.end(), module) == saved.end()) saved.push_back(module);
    }
    if (!attrs.Has(ir::kLoraOfAttr)) continue;
    config.lora.rank = model.type(model.node(id).outputs[0]).dims.back();
    config.lora.alpha = attrs.Real(ir::kLoraAlphaAttr);
    config.lora.dropout = attrs.Real(ir::kLoraDropoutAttr);
    config.lora.rank_stabilized = attrs.Int(ir::kLoraStabilizedAttr) != 0;
    config.lora.target_modules = attrs.Strs(ir::kLoraTargetsAttr);
    if (attrs.Int(ir::kLoraInputsFirstAttr) != 0) config.fan_in_fan_out = true;
  }
  if (config.lora.rank == 0) return {};
  return {{kMetadataKey, FormatAdapterConfig(config)}};
}

Result<std::optional<AdapterConfig>> AdapterConfigOf(const SafetensorsFile& file) {
  const auto it = file.metadata().find(kMetadataKey);
  if (it == file.metadata().end()) return std::optional<AdapterConfig>();
  auto config = ParseAdapterConfig(it->second);
  if (!config) return Fail(config.error().WithContext(file.path() + ", adapter_config"));
  return std::optional<AdapterConfig>(*std::move(config));
}

Status WriteAdapter(const SafetensorsFile& tuned, const std::string& folder,
                    const std::string& base_model) {
  MW_ASSIGN_OR_RETURN(AdapterConfig config, RequireConfig(tuned));
  config.base_model = base_model;
  std::vector<Part> parts;
  for (const SafetensorsEntry& entry : tuned.entries()) {
    const bool saved =
        !IsAdapterTensor(entry.name) && MatchesModule(entry.name, config.lora.modules_to_save);
    if (!saved && !IsAdapterTensor(entry.name)) continue;
    MW_ASSIGN_OR_RETURN(TensorSpec spec, SpecOf(tuned, entry));
    if (saved) spec.name = kPrefix + spec.name;
    parts.push_back({std::move(spec), &tuned, &entry});
  }
  MW_TRY(MakeDirs(folder));
  MW_TRY(WriteParts(parts, folder + "/" + kAdapterWeights, {}));
  return WriteFileAtomic(folder + "/" + kAdapterConfig, FormatAdapterConfig(config));
}

Status JoinAdapter(const std::string& base_path, const std::string& folder,
                   const std::string& path) {
  const std::string config_path = folder + "/" + kAdapterConfig;
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(config_path));
  const auto config = ParseAdapterConfig(text);
  if (!config) return config.error().WithContext(config_path);
  MW_ASSIGN_OR_RETURN(const auto base, SafetensorsFile::Open(base_path));
  MW_ASSIGN_OR_RETURN(const auto adapter,
                      SafetensorsFile::Open(folder + "/" + std::string(kAdapterWeights)));
  std::vector<Part> parts;
  std::map<std::string, const SafetensorsEntry*> replaced;  // by the name in the base
  for (const SafetensorsEntry& entry : adapter->entries()) {
    MW_ASSIGN_OR_RETURN(TensorSpec spec, SpecOf(*adapter, entry));
    const bool own = IsAdapterTensor(entry.name);
    std::string_view name = entry.name;
    if (name.starts_with(kPrefix)) name.remove_prefix(std::string_view(kPrefix).size());
    const SafetensorsEntry* weight = FindWeight(*base, own ? WeightOf(entry.name) : name);
    if (weight == nullptr) {
      return InvalidArgument(fmt::format("{}: '{}' belongs to no weight of {}", adapter->path(),
                                         entry.name, base->path()));
    }
    if (own) {
      parts.push_back({std::move(spec), adapter.get(), &entry});
    } else {
      replaced[weight->name] = &entry;
    }
  }
  for (const SafetensorsEntry& entry : base->entries()) {
    const auto other = replaced.find(entry.name);
    const bool kept = other == replaced.end();
    const SafetensorsFile& from = kept ? *base : *adapter;
    const SafetensorsEntry& source = kept ? entry : *other->second;
    MW_ASSIGN_OR_RETURN(TensorSpec spec, SpecOf(from, source));
    spec.name = entry.name;
    parts.push_back({std::move(spec), &from, &source});
  }
  return WriteParts(parts, path, {{kMetadataKey, FormatAdapterConfig(*config)}});
}

Status MergeAdapter(const SafetensorsFile& tuned, const std::string& path,
                    std::optional<ir::DType> dtype) {
  MW_ASSIGN_OR_RETURN(const AdapterConfig config, RequireConfig(tuned));
  return Merger(tuned, config).Run(path, dtype);
}

}  // namespace meshwright::formats
