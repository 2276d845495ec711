// HTTP for tests: the body of one page.
#pragma once

#include <string>

namespace meshwright::testing {

// GET from "127.0.0.1:port"; a sentence when there is no answer.
std::string HttpGet(const std::string& address, const std::string& path);

}  // namespace meshwright::testing
