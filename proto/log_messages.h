// Messages about the logs of workers: what outlives a worker with its controller, and what is
// fetched from one that is here.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/line_log.h"
#include "base/status.h"

namespace meshwright::proto {

inline constexpr size_t kMostLogLines = 64;                 // of a message
inline constexpr size_t kMostLogLineBytes = 4096;           // what is beyond is cut
inline constexpr size_t kMostLogPiece = size_t{512} << 10;  // of an answer

struct LogLines {
  std::vector<std::string> lines;
  int64_t dropped = 0;  // that there were more since the last message
  friend bool operator==(const LogLines&, const LogLines&) = default;
};

struct FetchLog {
  uint64_t ask = 0;
  int64_t from = -1;  // as of LineQuery
  int64_t lines = 0;
  int64_t since_unix_ms = 0;
  int64_t job = 0;
  int64_t most_bytes = 0;
  friend bool operator==(const FetchLog&, const FetchLog&) = default;
};

struct LogPiece {
  uint64_t ask = 0;
  std::string text;
  int64_t next = 0;
  bool end = false;
  StatusCode code = StatusCode::kOk;
  std::string message = {};
  friend bool operator==(const LogPiece&, const LogPiece&) = default;
};

// With the bounds of an answer.
LineQuery QueryOf(const FetchLog& fetch);

}  // namespace meshwright::proto
