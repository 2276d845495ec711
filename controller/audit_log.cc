#include "controller/audit_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "base/os_error.h"
#include "base/text.h"
#include "base/utf8.h"

namespace meshwright::controller {
namespace {

constexpr int64_t kRefusalsPerSecond = 20;
// Of what callers choose: one line of theirs cannot turn the file over.
constexpr size_t kMostFieldBytes = 200;

std::string Moment(int64_t unix_ms) {
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     unix_ms % 1000);
}

std::string Field(const std::string& text) { return JsonEscape(AsUtf8(text, kMostFieldBytes)); }

// "/meshwright.v1.JobService/Cancel": what stands behind the package.
std::string ShortName(const std::string& method) {
  const std::string package = "/meshwright.v1.";
  return method.starts_with(package) ? method.substr(package.size()) : method;
}

}  // namespace

Result<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path, const Clock& clock) {
  auto log = std::unique_ptr<AuditLog>(new AuditLog(path, clock));
  const MutexLock lock(log->mutex_);
  MW_TRY(log->OpenFile());
  return log;
}

Status AuditLog::OpenFile() {
  fd_.Reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd_.valid()) return OsError(errno, path_);
  struct stat found {};
  bytes_ = ::fstat(fd_.get(), &found) == 0 ? static_cast<int64_t>(found.st_size) : 0;
  return OkStatus();
}

Status AuditLog::Rotate() {
  for (int i = kOldFiles; i > 0; --i) {
    const std::string from = i == 1 ? path_ : fmt::format("{}.{}", path_, i - 1);
    const std::string to = fmt::format("{}.{}", path_, i);
    if (::rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT) return OsError(errno, from);
  }
  return OpenFile();
}

Status AuditLog::Append(const std::string& line) {
  if (bytes_ + static_cast<int64_t>(line.size()) > kMostBytes) MW_TRY(Rotate());
  const ssize_t written = ::write(fd_.get(), line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) {
    return OsError(written < 0 ? errno : ENOSPC, path_);
  }
  bytes_ += written;
  return OkStatus();
}

void AuditLog::WriteLine(const AuditEntry& entry, int64_t left_out) {
  const std::string answer = entry.answer.ok() ? "ok" : entry.answer.ToString();
  std::string line = fmt::format(
      R"({{"when":"{}","who":"{}","role":"{}","from":"{}","what":"{}","on":"{}","answer":"{}")",
      Moment(clock_.UnixMs()), Field(entry.who), Field(entry.role), Field(entry.from),
      Field(ShortName(entry.what)), Field(entry.on), Field(answer));
  if (left_out > 0) line += fmt::format(R"(,"refusals_left_out":{})", left_out);
  line += "}\n";
  const Status written = Append(line);
  if (!written.ok()) LogError("the audit log misses a line: " + written.message() + ": " + line);
}

void AuditLog::Write(const AuditEntry& entry) {
  const MutexLock lock(mutex_);
  WriteLine(entry, std::exchange(left_out_, 0));
}

void AuditLog::WriteRefused(const AuditEntry& entry) {
  const MutexLock lock(mutex_);
  const int64_t second = clock_.NowMs() / 1000;
  if (second != second_) {
    second_ = second;
    refused_ = 0;
  }
  if (++refused_ > kRefusalsPerSecond) {
    ++left_out_;
    return;
  }
  WriteLine(entry, std::exchange(left_out_, 0));
}

}  // namespace meshwright::controller
