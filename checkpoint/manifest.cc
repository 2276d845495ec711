#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/json_int.h"
#include "checkpoint/cover.h"

namespace meshwright::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "meshwright-checkpoint/1";
constexpr int64_t kMaxRank = 16;

json BoxJson(const StoredBox& box) {
  json digests = json::array();
  for (const Digest& digest : box.digests) digests.push_back(ToText(digest));
  return {{"at", box.box.offset},
          {"size", box.box.size},
          {"file", box.file},
          {"begin", box.begin_bytes},
          {"digests", std::move(digests)}};
}

json TensorJson(const StoredTensor& tensor) {
  json boxes = json::array();
  for (const StoredBox& box : tensor.boxes) boxes.push_back(BoxJson(box));
  return {{"dtype", std::string(ir::DTypeName(tensor.type.dtype))},
          {"shape", tensor.type.dims},
          {"kind", ir::MemoryKindName(tensor.kind)},
          {"boxes", std::move(boxes)}};
}

json FilesJson(const std::vector<StoredFile>& files) {
  json list = json::array();
  for (const StoredFile& file : files) list.push_back({{"name", file.name}, {"bytes", file.bytes}});
  return list;
}

json TensorsJson(const std::map<std::string, StoredTensor>& tensors) {
  json object = json::object();
  for (const auto& [name, tensor] : tensors) object[name] = TensorJson(tensor);
  return object;
}

// Text of a digest over everything else. Names are UTF-8 in the library; others are replaced.
std::string Dump(const json& body) {
  return body.dump(1, ' ', false, json::error_handler_t::replace);
}

// What is nested deeper than any manifest is left out, for code that walks a value calls itself.
json ParseFlat(std::string_view text) {
  constexpr int kDeepest = 16;
  return json::parse(
      text, [](int depth, json::parse_event_t, json&) { return depth <= kDeepest; }, false);
}

// Fields of a JSON object, by type; the error names the field.
class Fields {
 public:
  Fields(const json& object, std::string what) : object_(object), what_(std::move(what)) {}

  Result<const json*> Find(const char* field) const {
    const auto it = object_.is_object() ? object_.find(field) : object_.end();
    if (!object_.is_object() || it == object_.end()) {
      return Fail(DataLoss(fmt::format("{} has no '{}'", what_, field)));
    }
    return &*it;
  }
  Result<int64_t> Int(const char* field) const {
    MW_ASSIGN_OR_RETURN(const json* value, Find(field));
    const auto number = FindJsonInt(*value);
    if (!number) return Wrong(field, "whole number");
    return *number;
  }
  Result<std::string> Text(const char* field) const {
    MW_ASSIGN_OR_RETURN(const json* value, Find(field));
    if (!value->is_string()) return Wrong(field, "text");
    return value->get<std::string>();
  }
  Result<const json*> Array(const char* field) const {
    MW_ASSIGN_OR_RETURN(const json* value, Find(field));
    if (!value->is_array()) return Wrong(field, "list");
    return value;
  }
  Result<ir::Dims> Dims(const char* field) const {
    MW_ASSIGN_OR_RETURN(const json* value, Array(field));
    ir::Dims dims;
    for (const json& dim : *value) {
      const auto size = FindJsonInt(dim, int64_t{0});
      if (!size || static_cast<int64_t>(dims.size()) == kMaxRank) {
        return Wrong(field, "list of sizes");
      }
      dims.push_back(*size);
    }
    return dims;
  }

 private:
  internal::Failure Wrong(const char* field, const char* wanted) const {
    return Fail(DataLoss(fmt::format("'{}' of {} is no {}", field, what_, wanted)));
  }

  const json& object_;
  std::string what_;
};

Result<ir::MemoryKind> ParseKind(const std::string& name) {
  using ir::MemoryKind;
  for (const MemoryKind kind :
       {MemoryKind::kWeights, MemoryKind::kGradients, MemoryKind::kOptimizer,
        MemoryKind::kActivations, MemoryKind::kWorkspace, MemoryKind::kOther}) {
    if (name == ir::MemoryKindName(kind)) return kind;
  }
  return Fail(DataLoss(fmt::format("'{}' is no kind of state", name)));
}

Result<StoredBox> ParseBox(const json& object, const std::string& what) {
  const Fields fields(object, what);
  StoredBox box;
  MW_ASSIGN_OR_RETURN(box.box.offset, fields.Dims("at"));
  MW_ASSIGN_OR_RETURN(box.box.size, fields.Dims("size"));
  MW_ASSIGN_OR_RETURN(const int64_t file, fields.Int("file"));
  if (file < 0 || file > INT32_MAX) return Fail(DataLoss(what + ": no file of this number"));
  box.file = static_cast<int32_t>(file);
  MW_ASSIGN_OR_RETURN(box.begin_bytes, fields.Int("begin"));
  MW_ASSIGN_OR_RETURN(const json* digests, fields.Array("digests"));
  for (const json& text : *digests) {
    if (!text.is_string()) return Fail(DataLoss(what + ": a digest is no text"));
    auto digest = ParseDigest(text.get_ref<const std::string&>());
    if (!digest.has_value())
      return Fail(DataLoss(std::string(digest.error().message())).WithContext(what));
    box.digests.push_back(*digest);
  }
  return box;
}

Result<StoredTensor> ParseTensor(const json& object, const std::string& name) {
  const std::string what = fmt::format("tensor '{}'", name);
  const Fields fields(object, what);
  StoredTensor tensor;
  MW_ASSIGN_OR_RETURN(const std::string dtype, fields.Text("dtype"));
  auto parsed = ir::ParseDType(dtype);
  if (!parsed.has_value())
    return Fail(DataLoss(std::string(parsed.error().message())).WithContext(what));
  tensor.type.dtype = *parsed;
  MW_ASSIGN_OR_RETURN(tensor.type.dims, fields.Dims("shape"));
  MW_ASSIGN_OR_RETURN(const std::string kind, fields.Text("kind"));
  MW_ASSIGN_OR_RETURN(tensor.kind, ParseKind(kind));
  MW_ASSIGN_OR_RETURN(const json* boxes, fields.Array("boxes"));
  for (const json& box : *boxes) {
    MW_ASSIGN_OR_RETURN(StoredBox stored, ParseBox(box, what));
    tensor.boxes.push_back(std::move(stored));
  }
  return tensor;
}

Result<Shards> ShardsOf(const Fields& fields) {
  Shards shards;
  MW_ASSIGN_OR_RETURN(const json* files, fields.Array("files"));
  for (const json& file : *files) {
    const Fields of_file(file, "a file");
    StoredFile stored;
    MW_ASSIGN_OR_RETURN(stored.name, of_file.Text("name"));
    MW_ASSIGN_OR_RETURN(stored.bytes, of_file.Int("bytes"));
    shards.files.push_back(std::move(stored));
  }
  MW_ASSIGN_OR_RETURN(const json* tensors, fields.Find("tensors"));
  if (!tensors->is_object()) return Fail(DataLoss("the tensors are no object"));
  for (const auto& [name, object] : tensors->items()) {
    MW_ASSIGN_OR_RETURN(StoredTensor tensor, ParseTensor(object, name));
    shards.tensors.emplace(name, std::move(tensor));
  }
  return shards;
}

Result<Manifest> ParseBody(const json& body) {
  const Fields fields(body, "the manifest");
  Manifest manifest;
  MW_ASSIGN_OR_RETURN(const std::string format, fields.Text("format"));
  if (format != kFormat) {
    return Fail(
        DataLoss(fmt::format("the manifest is '{}', this version reads '{}'", format, kFormat)));
  }
  MW_ASSIGN_OR_RETURN(manifest.step, fields.Int("step"));
  MW_ASSIGN_OR_RETURN(const json* seed, fields.Find("seed"));
  const auto number = FindJsonInt<uint64_t>(*seed);
  if (!number) return Fail(DataLoss("'seed' of the manifest is no whole number of at least 0"));
  manifest.seed = *number;
  MW_ASSIGN_OR_RETURN(manifest.job_id, fields.Int("job_id"));
  MW_ASSIGN_OR_RETURN(manifest.job_name, fields.Text("job_name"));
  MW_ASSIGN_OR_RETURN(manifest.layout, fields.Text("layout"));
  MW_ASSIGN_OR_RETURN(manifest.saved_unix_ms, fields.Int("saved_unix_ms"));
  MW_ASSIGN_OR_RETURN(manifest.cause, fields.Text("cause"));
  MW_ASSIGN_OR_RETURN(Shards shards, ShardsOf(fields));
  manifest.files = std::move(shards.files);
  manifest.tensors = std::move(shards.tensors);
  return manifest;
}

// A name may not lead out of the folder of the checkpoint.
Status CheckFile(const StoredFile& file) {
  const bool plain = !file.name.empty() && file.name.front() != '/' &&
                     file.name.find("..") == std::string::npos &&
                     file.name.find('\0') == std::string::npos;
  if (!plain || file.bytes < 0) {
    return DataLoss(
        fmt::format("'{}' of {} bytes is no file of a checkpoint", file.name, file.bytes));
  }
  return OkStatus();
}

// Elements of a whole tensor that fit 2^62 bytes, or nothing.
bool FitsMemory(const ir::TensorType& type) {
  int64_t bytes = ir::DTypeBytes(type.dtype);
  for (const int64_t dim : type.dims) {
    if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > INT64_MAX / 2) return false;
  }
  return true;
}

Status CheckTensor(const Manifest& manifest, const StoredTensor& tensor) {
  if (!FitsMemory(tensor.type)) return DataLoss("its shape is larger than any memory");
  std::vector<ir::Box> boxes;
  boxes.reserve(tensor.boxes.size());
  for (const StoredBox& stored : tensor.boxes) boxes.push_back(stored.box);
  MW_TRY(CheckExactCover(tensor.type.dims, boxes));
  for (const StoredBox& stored : tensor.boxes) {
    const int64_t bytes = Volume(stored.box) * ir::DTypeBytes(tensor.type.dtype);
    if (static_cast<int64_t>(stored.digests.size()) != PieceCount(bytes)) {
      return DataLoss(fmt::format("box {} has {} digests for {} pieces", ToText(stored.box),
                                  stored.digests.size(), PieceCount(bytes)));
    }
    const auto file = static_cast<size_t>(stored.file);
    if (stored.file < 0 || file >= manifest.files.size() || stored.begin_bytes < 0 ||
        stored.begin_bytes > manifest.files[file].bytes - bytes) {
      return DataLoss(fmt::format("box {} of {} bytes at byte {} of file {} is in no file",
                                  ToText(stored.box), bytes, stored.begin_bytes, stored.file));
    }
  }
  return OkStatus();
}

}  // namespace

std::string FormatManifest(const Manifest& manifest) {
  json body = {{"format", kFormat},
               {"step", manifest.step},
               {"seed", manifest.seed},
               {"job_id", manifest.job_id},
               {"job_name", manifest.job_name},
               {"layout", manifest.layout},
               {"saved_unix_ms", manifest.saved_unix_ms},
               {"cause", manifest.cause},
               {"files", FilesJson(manifest.files)},
               {"tensors", TensorsJson(manifest.tensors)}};
  body["digest"] = ToText(DigestOf(Dump(body)));
  return Dump(body) + "\n";
}

Result<Manifest> ParseManifest(std::string_view text) {
  json body = ParseFlat(text);
  if (body.is_discarded() || !body.is_object()) {
    return Fail(DataLoss("the manifest is no JSON object: it is cut off, or another file"));
  }
  const auto digest = body.find("digest");
  if (digest == body.end() || !digest->is_string()) {
    return Fail(DataLoss("the manifest has no digest of itself"));
  }
  const std::string said = digest->get<std::string>();
  body.erase("digest");
  if (said != ToText(DigestOf(Dump(body)))) {
    return Fail(DataLoss("the manifest is not what was written: its digest differs"));
  }
  MW_ASSIGN_OR_RETURN(Manifest manifest, ParseBody(body));
  MW_TRY(CheckManifest(manifest));
  return manifest;
}

std::string FormatShards(const Shards& shards) {
  const json body = {{"files", FilesJson(shards.files)}, {"tensors", TensorsJson(shards.tensors)}};
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Shards> ParseShards(std::string_view text) {
  const json body = ParseFlat(text);
  if (body.is_discarded() || !body.is_object()) {
    return Fail(DataLoss("what was written is no JSON object"));
  }
  return ShardsOf(Fields(body, "what was written"));
}

Status AddShards(Manifest& manifest, const Shards& shards) {
  const auto first = static_cast<int32_t>(manifest.files.size());
  manifest.files.insert(manifest.files.end(), shards.files.begin(), shards.files.end());
  for (const auto& [name, tensor] : shards.tensors) {
    const auto [it, added] = manifest.tensors.try_emplace(name);
    StoredTensor& whole = it->second;
    if (added) {
      whole.type = tensor.type;
      whole.kind = tensor.kind;
    } else if (whole.type != tensor.type || whole.kind != tensor.kind) {
      return DataLoss(fmt::format("tensor '{}' is {} for one worker, {} for another", name,
                                  whole.type.ToString(), tensor.type.ToString()));
    }
    for (StoredBox box : tensor.boxes) {
      const auto file = static_cast<size_t>(box.file);
      if (box.file < 0 || file >= shards.files.size()) {
        return DataLoss(fmt::format("a box of tensor '{}' is in no file", name));
      }
      box.file += first;
      whole.boxes.push_back(std::move(box));
    }
  }
  return OkStatus();
}

Status CheckManifest(const Manifest& manifest) {
  if (manifest.step < 0) return DataLoss(fmt::format("step {} is none", manifest.step));
  std::set<std::string> names;
  for (const StoredFile& file : manifest.files) {
    MW_TRY(CheckFile(file));
    if (!names.insert(file.name).second) {
      return DataLoss(fmt::format("file '{}' is there twice", file.name));
    }
  }
  for (const auto& [name, tensor] : manifest.tensors) {
    MW_TRY(CheckTensor(manifest, tensor).WithContext(fmt::format("tensor '{}'", name)));
  }
  return OkStatus();
}

int64_t StateBytes(const Manifest& manifest) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : manifest.tensors) bytes += tensor.type.bytes();
  return bytes;
}

}  // namespace meshwright::checkpoint
