// The audit log: who did what to the cluster, a JSON line for each call that acts or is refused.
//
//   {"when":"2026-11-27T05:30:00.123Z","who":"ann","role":"operator","from":"ipv4:10.0.0.2:40312",
//    "what":"JobService/Cancel","on":"job 12","answer":"ok"}
//
// `who` is the name in the certificate, "" without one; `role` "" where everyone may do everything.
// Each field has 200 bytes at most. The file is rotated at 16 MiB, four old ones are kept. Refusals
// are written 20 in a second at most: strangers cannot fill the disk with them, nor drive out what
// is in the log; the next line says how many were left out.
//
// Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright::controller {

struct AuditEntry {
  std::string who;
  std::string role;
  std::string from;
  std::string what;
  std::string on;
  Status answer;
};

class AuditLog {
 public:
  static constexpr int64_t kMostBytes = int64_t{16} << 20;
  static constexpr int kOldFiles = 4;

  // Appends to the file (mode 0600). Errors: those of opening it.
  static Result<std::unique_ptr<AuditLog>> Open(const std::string& path,
                                                const Clock& clock = SystemClock());

  // A line that cannot be written is logged, not lost in silence.
  void Write(const AuditEntry& entry);
  void WriteRefused(const AuditEntry& entry);

 private:
  AuditLog(std::string path, const Clock& clock) : path_(std::move(path)), clock_(clock) {}
  Status OpenFile() MW_REQUIRES(mutex_);
  Status Append(const std::string& line) MW_REQUIRES(mutex_);
  Status Rotate() MW_REQUIRES(mutex_);
  void WriteLine(const AuditEntry& entry, int64_t left_out) MW_REQUIRES(mutex_);

  const std::string path_;
  const Clock& clock_;
  Mutex mutex_;
  UniqueFd fd_ MW_GUARDED_BY(mutex_);
  int64_t bytes_ MW_GUARDED_BY(mutex_) = 0;
  int64_t second_ MW_GUARDED_BY(mutex_) = 0;  // in which refusals are counted
  int64_t refused_ MW_GUARDED_BY(mutex_) = 0;
  int64_t left_out_ MW_GUARDED_BY(mutex_) = 0;
};

}  // namespace meshwright::controller
