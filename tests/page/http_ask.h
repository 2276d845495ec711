// HTTP for tests of the page: any method, any header, and streams as far as one wants to read them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace meshwright::testing {

struct HttpAsk {
  std::string method = "GET";
  std::string path = {};
  std::string headers = {};  // lines that end with "\r\n", besides Host
  std::string body = {};
  std::string host = "localhost";
};

struct HttpAnswer {
  int code = 0;  // 0: there was no answer
  std::string header;
  std::string body = {};
};

// Of 127.0.0.1:port. until: is asked after every piece of the body; true: enough, the connection is
// dropped. Waits for 20 s at most.
HttpAnswer AskHttp(int port, const HttpAsk& ask,
                   const std::function<bool(const std::string& body)>& until = {});

}  // namespace meshwright::testing
