// The manual page meshwright(1), out of the parser's own table.
//
// Thread rule: a pure function.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace meshwright::cli {

// In the language of man(7).
std::string ManPage(const CLI::App& app, const std::string& version);

}  // namespace meshwright::cli
