#include "security/issue_book.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/json_int.h"
#include "base/text.h"

namespace meshwright::security {
namespace {

using nlohmann::json;

std::string LineOf(const IssueBook::Issue& issue, const std::string& nonce) {
  return json{{"name", issue.name},
              {"key", issue.key_sha256},
              {"ends_s", issue.ends_s},
              {"token", nonce}}
             .dump() +
         "\n";
}

std::string TextOf(const json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

Result<std::unique_ptr<IssueBook>> IssueBook::Open(const std::string& path, int64_t now_s) {
  auto book = std::unique_ptr<IssueBook>(new IssueBook(path));
  if (!FileExists(path)) return book;
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const MutexLock lock(book->mutex_);
  std::string kept;
  for (const std::string& line : Split(text, '\n')) {
    if (line.empty()) continue;
    const json read = json::parse(line, nullptr, /*allow_exceptions=*/false);
    // What a crash cut off was never answered.
    if (!read.is_object()) continue;
    const auto ends_s = JsonIntOf(read, "ends_s", int64_t{0});
    if (!ends_s.has_value() || *ends_s < now_s) continue;
    Issue issue{TextOf(read, "name"), TextOf(read, "key"), *ends_s};
    const std::string nonce = TextOf(read, "token");
    kept += LineOf(issue, nonce);
    if (!nonce.empty()) book->used_.insert(nonce);
    const std::string name = issue.name;
    book->issues_[name] = std::move(issue);
  }
  if (kept != text) MW_TRY(WriteFileAtomic(path, kept, 0600));
  return book;
}

Status IssueBook::Admit(const JoinToken& token, const Issue& issue, int64_t now_s) {
  const MutexLock lock(mutex_);
  if (!token.name.empty() && token.name != issue.name) {
    return PermissionDenied(
        fmt::format("the join token is for the worker '{}', not for '{}'", token.name, issue.name));
  }
  if (token.once && used_.count(token.nonce) != 0) {
    return PermissionDenied(
        "the join token has been used, and it is for one time; print a new one with `meshwright "
        "cert join-token`");
  }
  if (token.name.empty() && !token.replace && Taken(issue, now_s)) {
    return PermissionDenied(fmt::format(
        "a worker '{0}' has a certificate already; choose another --name, or print a token for "
        "this one with `meshwright cert join-token --name {0}`",
        issue.name));
  }
  return Append(issue, token.once ? token.nonce : "");
}

Status IssueBook::Renew(const Issue& issue, int64_t now_s) {
  const MutexLock lock(mutex_);
  if (Taken(issue, now_s)) {
    return PermissionDenied(fmt::format(
        "the name '{0}' was given to another host, so this certificate is not renewed; have this "
        "host join under another --name, or, where the name is to be this host's, by a token of "
        "`meshwright cert join-token --name {0}`",
        issue.name));
  }
  return Append(issue, "");
}

bool IssueBook::Taken(const Issue& issue, int64_t now_s) const {
  const auto held = issues_.find(issue.name);
  return held != issues_.end() && held->second.ends_s >= now_s &&
         held->second.key_sha256 != issue.key_sha256;
}

Status IssueBook::Append(const Issue& issue, const std::string& nonce) {
  const std::string line = LineOf(issue, nonce);
  if (FileExists(path_)) {
    MW_TRY(AppendFile(path_, line));
  } else {
    MW_TRY(WriteFileAtomic(path_, line, 0600));
  }
  issues_[issue.name] = issue;
  if (!nonce.empty()) used_.insert(nonce);
  return OkStatus();
}

}  // namespace meshwright::security
