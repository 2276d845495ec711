// Spans sent to a collector of OpenTelemetry: OTLP/HTTP in JSON, in the clear.
//
//   http://127.0.0.1:4318             its /v1/traces
//   http://collector:4318/v1/traces   what is to be asked, word for word
//
// A collector that wants TLS or a password is reached by one on this host, which has them in its
// own configuration; here they are refused.
//
// Thread rule: pure functions but for the connection.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meshwright::cli {

struct OtlpEndpoint {
  std::string address;  // host:port, an IPv6 host in brackets
  std::string path;     // begins with '/'
  std::string Url() const { return "http://" + address + path; }
};

// "http://..." and "https://...", of which the second is refused later, with the reason.
bool IsUrl(std::string_view to);

// Errors: kInvalidArgument naming what is wrong and how it is written.
Result<OtlpEndpoint> ParseOtlpEndpoint(const std::string& url);

// One request of the protocol; returns when the collector has taken it. Errors: kUnavailable:
// nobody takes connections there, or it is too busy now; kDeadlineExceeded: not within timeout_ms,
// which a name that has to be looked up is not counted to; kFailedPrecondition: it refuses the
// request, or a part of it.
Status PostOtlp(const OtlpEndpoint& to, std::string_view request, int64_t timeout_ms);

}  // namespace meshwright::cli
