// HttpServer: the HTTP server of a daemon, of which there is one in a process.
//
// It parses requests (civetweb does) and hands each one whole to a handler, which answers with a
// body or with a stream that lasts. What a stranger can take is bounded: connections at once,
// bytes of a header and of a body, the time in which each of them has to come, bodies that are
// waited for at once (a quarter of the threads: the others are there for who asks for health), and
// the time for which a reader that does not read is waited for.
//
// Thread rule: thread-safe; handlers and streams run on the server's threads, several at once.
// Ownership: what handlers use must outlive the server.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace meshwright {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // numeric address to listen on; "0.0.0.0" for all
  int port = 0;                    // 0: the system picks one
  // Callers at once: each holds a thread, streams as long as they last.
  int threads = 16;
  // In which the header of a request has to come, then its body, each whole; and in which 8 KiB of
  // an answer have to be taken.
  int request_ms = 1000;
  int64_t body_bytes = 4 << 10;  // of a POST or a PUT; of others none is read
  int64_t header_bytes = 16 << 10;
  const Clock* clock = &SystemClock();  // by which bodies have their time
};

struct HttpRequest {
  std::string method;                          // "GET"
  std::string path;                            // decoded, without the query; begins with '/'
  std::string query;                           // behind the '?', as it came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::string from;  // who sent it, as gRPC writes it: "ipv4:10.0.0.2:40312"

  // "" when it was not sent.
  std::string Header(const std::string& name) const;
  // The decoded value of `name` in the query; "" when it is not there.
  std::string Query(std::string_view name) const;
  // The value of a cookie; "" when it was not sent.
  std::string Cookie(std::string_view name) const;
};

// Text of the form a=1&b=x%20y: the decoded value of `name`, "" when it is not there or is no text
// of that form.
std::string FormValue(std::string_view form, std::string_view name);

// The far end of an answer that lasts.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // False: the reader is gone or too slow, or the server ends; return from the stream then.
  virtual bool Write(std::string_view text) = 0;
};

struct HttpReply {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // besides the usual ones
  // Instead of the body. It has to return soon after Write said so, and after the server's owner
  // has told it to end, which comes before the server's end.
  std::function<void(HttpStream&)> stream;
};

// A line of text with the HTTP code that its error has.
HttpReply ReplyOf(const Status& error);

class HttpServer {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;

  // Listens when this returns. Errors: kAlreadyExists port taken; kPermissionDenied port below
  // 1024; kInvalidArgument host or port. The message names both and says what to change.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                   Handler handler);
  // Closes the port and waits for running handlers.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;  // that it listens on

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace meshwright
