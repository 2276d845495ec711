// A job file on its way to a request: what a client sends that cannot resolve it, and what it is
// answered. The fields are those of proto/resolve.proto.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"

namespace meshwright::proto {

struct ClientFile {
  std::string path;  // absolute, on the client's machine
  int64_t size_bytes = 0;
  std::string sha256;  // it was uploaded; else workers read it in place
  std::string root, below, sampled;
  std::string head;   // its first bytes, where it is read in place
  std::string local;  // where this process has it; empty: it has the head only
  friend bool operator==(const ClientFile&, const ClientFile&) = default;
};

struct JobFile {
  std::string text, file;
  std::vector<std::string> overrides;
  std::map<std::string, std::string> environment;
  std::string folder, working_folder;
  std::string owner;  // who asks, by its certificate; not on the wire. Empty: it has none
  std::vector<ClientFile> files;
  bool listed = false;  // the client has no others that the job wants
  // Its own programs, in the place of a model, and who drives them; the rest says the file.
  std::optional<ir::JobRequest> own;
};

struct JobFileError {
  std::string key, place;
  int64_t line = 0, column = 0;
  std::string message, hint;
  StatusCode code = StatusCode::kInvalidArgument;
};

// Numbers are those of the wire.
enum class WantedKind : uint8_t { kData = 0, kModel = 1, kWeights = 2 };

struct WantedFiles {
  std::string key, path;
  WantedKind kind = WantedKind::kData;
  bool weights = false;  // of a model: they are read, too
  friend bool operator==(const WantedFiles&, const WantedFiles&) = default;
};

struct ResolvedFile {
  std::optional<ir::JobRequest> job;
  std::vector<std::string> notes;
  std::vector<JobFileError> errors;
  std::vector<WantedFiles> wanted;
  std::string summary;
};

// Makes a file of this process one that workers can fetch.
using StoreFile = std::function<Result<ir::BlobRef>(const std::string& path)>;
// May take seconds; reads files, and the clock for nothing. Safe on any text.
using ResolveFile = std::function<ResolvedFile(const JobFile&, const StoreFile&)>;

}  // namespace meshwright::proto
