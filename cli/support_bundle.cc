#include "cli/support_bundle.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"

namespace meshwright::cli {
namespace {

std::string MadeAt(int64_t unix_ms) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(static_cast<std::time_t>(unix_ms / 1000)));
}

}  // namespace

void SupportBundle::Add(const std::string& name, const Result<std::string>& text) {
  if (!text.has_value()) {
    missing_.push_back({name, redactor_.Redact(text.error().message()).text});
    return;
  }
  if (text->empty()) return;
  Part part;
  part.file.name = facts_.name + "/" + name;
  MW_CHECK(part.file.name.size() <= formats::kMostNameBytes) << part.file.name;
  std::string_view end = *text;
  if (end.size() > kMostBytes) {
    part.cut_bytes = end.size() - kMostBytes;
    // From the begin of a line on, where there are lines.
    const size_t line = end.find('\n', part.cut_bytes);
    if (line != std::string_view::npos) part.cut_bytes = line + 1;
    end.remove_prefix(part.cut_bytes);
  }
  Redacted redacted = redactor_.Redact(end);
  part.file.bytes = std::move(redacted.text);
  part.left_out = redacted.left_out;
  left_out_ += part.left_out;
  files_.push_back(std::move(part));
}

std::string SupportBundle::Manifest() const {
  auto files = nlohmann::ordered_json::array();
  for (const Part& part : files_) {
    nlohmann::ordered_json file = {{"name", part.file.name.substr(facts_.name.size() + 1)},
                                   {"bytes", part.file.bytes.size()},
                                   {"sha256", Sha256Hex(part.file.bytes)},
                                   {"left_out", part.left_out}};
    if (part.cut_bytes > 0) file["cut_bytes"] = part.cut_bytes;
    files.push_back(std::move(file));
  }
  auto missing = nlohmann::ordered_json::array();
  for (const MissingPart& part : missing_) {
    missing.push_back({{"name", part.name}, {"why", part.why}});
  }
  const nlohmann::ordered_json manifest = {{"made", MadeAt(facts_.unix_ms)},
                                           {"version", facts_.version},
                                           {"controller", facts_.address},
                                           {"left_out", left_out_},
                                           {"files", files},
                                           {"missing", missing}};
  return redactor_.Redact(manifest.dump(1, ' ', false, nlohmann::json::error_handler_t::replace))
             .text +
         "\n";
}

std::string SupportBundle::Tar() const {
  std::vector<formats::TarFile> all = {{facts_.name + "/manifest.json", Manifest()}};
  for (const Part& part : files_) all.push_back(part.file);
  return formats::TarOf(all, facts_.unix_ms / 1000);
}

}  // namespace meshwright::cli
