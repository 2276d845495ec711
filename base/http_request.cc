// What of base/http_server.h needs no server: the parts of a request.
#include <algorithm>
#include <optional>

#include "base/http_server.h"
#include "base/text.h"

namespace meshwright {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// None: a '%' without two digits behind it.
std::optional<std::string> Decode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return decoded;
}

}  // namespace

std::string FormValue(std::string_view form, std::string_view name) {
  for (const std::string& pair : Split(form, '&')) {
    const size_t equals = std::min(pair.find('='), pair.size());
    if (Decode(pair.substr(0, equals)) == name) {
      return Decode(pair.substr(std::min(equals + 1, pair.size()))).value_or("");
    }
  }
  return "";
}

std::string HttpRequest::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::string HttpRequest::Query(std::string_view name) const { return FormValue(query, name); }

std::string HttpRequest::Cookie(std::string_view name) const {
  for (const std::string& part : Split(Header("cookie"), ';')) {
    const std::string cookie(Trim(part));
    const size_t equals = cookie.find('=');
    if (equals != std::string::npos && cookie.substr(0, equals) == name) {
      return cookie.substr(equals + 1);
    }
  }
  return "";
}

HttpReply ReplyOf(const Status& error) {
  const auto code = [&error] {
    switch (error.code()) {
      case StatusCode::kInvalidArgument:
        return 400;
      case StatusCode::kUnauthenticated:
        return 401;
      case StatusCode::kPermissionDenied:
        return 403;
      case StatusCode::kNotFound:
        return 404;
      case StatusCode::kFailedPrecondition:
        return 409;
      case StatusCode::kResourceExhausted:
        return 429;
      case StatusCode::kUnavailable:
        return 503;
      default:
        return 500;
    }
  };
  HttpReply reply;
  reply.code = code();
  reply.body = error.ToString() + "\n";
  return reply;
}

}  // namespace meshwright
