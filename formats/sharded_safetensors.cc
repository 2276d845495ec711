#include "formats/sharded_safetensors.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "formats/safetensors.h"

namespace meshwright::formats {
namespace {

using Shards = std::map<std::string, std::shared_ptr<const SafetensorsFile>>;  // by file

// A tensor and the shard with its bytes.
struct Source {
  std::shared_ptr<const SafetensorsFile> file;
  const SafetensorsEntry* entry = nullptr;
};

Result<std::vector<Source>> FindTensors(const std::map<std::string, std::string>& file_of,
                                        const std::filesystem::path& folder) {
  Shards shards;
  std::vector<Source> sources;
  for (const auto& [name, file] : file_of) {
    std::shared_ptr<const SafetensorsFile>& shard = shards[file];
    if (!shard) {
      MW_ASSIGN_OR_RETURN(shard, SafetensorsFile::Open((folder / file).string()));
    }
    const SafetensorsEntry* entry = shard->Find(name);
    if (entry == nullptr) {
      return Fail(InvalidArgument(fmt::format(
          "the index says that '{}' is in {}, which has no such tensor; download both again", name,
          shard->path())));
    }
    if (!entry->dtype) {
      return Fail(Unimplemented(fmt::format("tensor '{}' of {} is {}, which is not supported", name,
                                            shard->path(), entry->dtype_name)));
    }
    sources.push_back({shard, entry});
  }
  return sources;
}

Status Merge(const std::string& index_path, const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(index_path));
  MW_ASSIGN_OR_RETURN(const auto file_of, ParseSafetensorsIndex(text));
  MW_ASSIGN_OR_RETURN(const std::vector<Source> sources,
                      FindTensors(file_of, std::filesystem::path(index_path).parent_path()));
  std::vector<TensorSpec> tensors;
  for (const Source& source : sources) {
    tensors.push_back({source.entry->name, {*source.entry->dtype, source.entry->shape}});
  }
  MW_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::Create(path, tensors));
  for (const Source& source : sources) {
    MW_CHECK(source.entry != nullptr && source.file != nullptr) << index_path;
    MW_TRY(writer->Write(source.entry->name, 0, source.file->data(*source.entry)));
  }
  return writer->Finish();
}

}  // namespace

Result<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view text) {
  const auto index = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object() || map->empty()) {
    return Fail(InvalidArgument("is no index of shards: it has no \"weight_map\" with tensors"));
  }
  std::map<std::string, std::string> file_of;
  for (const auto& [name, file] : map->items()) {
    const std::string shard = file.is_string() ? file.get<std::string>() : "";
    // An index that was downloaded must not reach into other folders.
    if (shard.empty() || shard.find('/') != std::string::npos) {
      return Fail(InvalidArgument(
          fmt::format("\"weight_map\" gives '{}' no file of the index's own folder", name)));
    }
    file_of[name] = shard;
  }
  return file_of;
}

Status MergeShards(const std::string& index_path, const std::string& path) {
  return Merge(index_path, path).WithContext(index_path);
}

}  // namespace meshwright::formats
