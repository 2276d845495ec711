#include "proto/convert_job_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "proto/convert.h"

namespace meshwright::proto {
namespace {

bool IsAbsolute(const std::string& path) {
  return !path.empty() && path.front() == '/' && path.find('\0') == std::string::npos;
}

// ".." would lead out of the folder in which the paths are looked for.
std::string Normal(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().string();
}

Result<std::string> DecodeFolder(const char* field, const std::string& path) {
  if (path.empty() || IsAbsolute(path)) return path.empty() ? path : Normal(path);
  return Fail(InvalidArgument(fmt::format("{} '{}' must be an absolute path", field, path)));
}

Result<ClientFile> DecodeFile(const v1::ClientFile& wire) {
  if (!IsAbsolute(wire.path())) {
    return Fail(InvalidArgument(
        fmt::format("files: '{}' must be an absolute path of the client's machine", wire.path())));
  }
  if (wire.size_bytes() < 0) {
    return Fail(InvalidArgument(fmt::format("files: '{}' has {} bytes; it must be 0 or more",
                                            wire.path(), wire.size_bytes())));
  }
  ClientFile file;
  file.path = Normal(wire.path());
  file.size_bytes = wire.size_bytes();
  file.sha256 = wire.sha256();
  file.root = wire.root();
  file.below = wire.below();
  file.sampled = wire.sampled();
  file.head = wire.head();
  return file;
}

}  // namespace

Result<JobFile> Decode(const v1::ResolveRequest& wire) {
  JobFile file;
  file.text = wire.text();
  file.file = wire.file().empty() ? "job.toml" : wire.file();
  file.overrides.assign(wire.overrides().begin(), wire.overrides().end());
  file.environment = {wire.environment().begin(), wire.environment().end()};
  MW_ASSIGN_OR_RETURN(file.folder, DecodeFolder("folder", wire.folder()));
  MW_ASSIGN_OR_RETURN(file.working_folder, DecodeFolder("working_folder", wire.working_folder()));
  for (const v1::ClientFile& each : wire.files()) {
    MW_ASSIGN_OR_RETURN(ClientFile decoded, DecodeFile(each));
    file.files.push_back(std::move(decoded));
  }
  file.listed = wire.listed();
  if (wire.has_own()) {
    MW_ASSIGN_OR_RETURN(file.own, Decode(wire.own()));
  }
  return file;
}

v1::ResolveReply Encode(const ResolvedFile& resolved) {
  v1::ResolveReply wire;
  if (resolved.job) *wire.mutable_job() = Encode(*resolved.job);
  for (const std::string& note : resolved.notes) wire.add_notes(note);
  for (const JobFileError& error : resolved.errors) {
    v1::JobFileError& each = *wire.add_errors();
    each.set_key(error.key);
    each.set_place(error.place);
    each.set_line(error.line);
    each.set_column(error.column);
    each.set_message(error.message);
    each.set_hint(error.hint);
    each.set_code(static_cast<int32_t>(error.code));
  }
  for (const WantedFiles& files : resolved.wanted) {
    v1::WantedFiles& each = *wire.add_wanted();
    each.set_key(files.key);
    each.set_path(files.path);
    each.set_kind(static_cast<v1::WantedKind>(files.kind));
    each.set_weights(files.weights);
  }
  wire.set_summary(resolved.summary);
  return wire;
}

}  // namespace meshwright::proto
