// What a command line says that the program does not know, and the known name that is nearest.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace meshwright::cli {

// The first word that is no command or option, with the nearest known name; "" when all are known.
std::string ExplainUnknown(const CLI::App& app, const std::vector<std::string>& args);

}  // namespace meshwright::cli
