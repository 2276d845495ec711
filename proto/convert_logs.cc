#include "proto/convert_logs.h"

#include <algorithm>

#include "base/utf8.h"
#include "proto/errors.h"

namespace meshwright::proto {

LineQuery QueryOf(const FetchLog& fetch) {
  const auto most = static_cast<int64_t>(kMostLogPiece);
  const int64_t bytes = fetch.most_bytes <= 0 ? most : std::min(fetch.most_bytes, most);
  return {fetch.from, fetch.lines, fetch.since_unix_ms, fetch.job, static_cast<size_t>(bytes)};
}

v1::LogLines Encode(const LogLines& m) {
  v1::LogLines wire;
  for (const std::string& line : m.lines) wire.add_lines(line);
  wire.set_dropped(m.dropped);
  return wire;
}

LogLines Decode(const v1::LogLines& wire) {
  LogLines m;
  for (const std::string& line : wire.lines()) {
    if (m.lines.size() == kMostLogLines) break;
    m.lines.push_back(AsUtf8(line, kMostLogLineBytes));
  }
  m.dropped = std::max<int64_t>(wire.dropped(), 0);
  return m;
}

v1::FetchLog Encode(const FetchLog& m) {
  v1::FetchLog wire;
  wire.set_ask(m.ask);
  wire.set_from(m.from);
  wire.set_lines(m.lines);
  wire.set_since_unix_ms(m.since_unix_ms);
  wire.set_job_id(m.job);
  wire.set_most_bytes(m.most_bytes);
  return wire;
}

FetchLog Decode(const v1::FetchLog& wire) {
  return {wire.ask(),           wire.from(),   wire.lines(),
          wire.since_unix_ms(), wire.job_id(), wire.most_bytes()};
}

v1::LogPiece Encode(const LogPiece& m) {
  v1::LogPiece wire;
  wire.set_ask(m.ask);
  wire.set_text(m.text);
  wire.set_next(m.next);
  wire.set_end(m.end);
  wire.set_code(static_cast<int32_t>(m.code));
  wire.set_message(m.message);
  return wire;
}

LogPiece Decode(const v1::LogPiece& wire) {
  LogPiece m;
  m.ask = wire.ask();
  m.text = wire.text();
  m.next = wire.next();
  m.end = wire.end();
  const bool known =
      wire.code() >= 0 && wire.code() <= static_cast<int>(StatusCode::kUnauthenticated);
  m.code = known ? static_cast<StatusCode>(wire.code()) : StatusCode::kUnknown;
  m.message = std::string(TruncateUtf8(wire.message(), kMaxErrorText));
  return m;
}

}  // namespace meshwright::proto
