#include "cli/connect.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

namespace meshwright::cli {
namespace {

// The user's config file; empty when there is no home.
std::string UserConfigPath(const Environment& environment) {
  if (const auto folder = environment("XDG_CONFIG_HOME"); folder && !folder->empty()) {
    return *folder + "/meshwright/config.toml";
  }
  const auto home = environment("HOME");
  return home ? *home + "/.config/meshwright/config.toml" : "";
}

}  // namespace

Result<std::string> ResolveAddress(const GlobalArgs& global, const Environment& environment) {
  if (!global.address.empty()) return global.address;
  if (const auto address = environment("MESHWRIGHT_ADDRESS"); address && !address->empty())
    return *address;
  const std::string path = UserConfigPath(environment);
  if (!path.empty() && FileExists(path)) {
    MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    const toml::parse_result parsed = toml::parse(text, path);
    if (!parsed.succeeded()) {
      return Fail(InvalidArgument(fmt::format("{}:{}: {}", path, parsed.error().source().begin.line,
                                              parsed.error().description())));
    }
    if (const auto address = parsed.table()["address"].value<std::string>()) return *address;
  }
  return std::string("127.0.0.1:7700");
}

Result<std::string> LoadToken(const GlobalArgs& global, const Environment& environment) {
  if (!global.token_file.empty()) {
    MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(global.token_file));
    return std::string(Trim(text));
  }
  return environment("MESHWRIGHT_TOKEN").value_or("");
}

Result<std::unique_ptr<client::Client>> Connect(const GlobalArgs& global) {
  client::Client::Options options;
  MW_ASSIGN_OR_RETURN(options.address, ResolveAddress(global, ProcessEnvironment));
  MW_ASSIGN_OR_RETURN(options.token, LoadToken(global, ProcessEnvironment));
  return client::Client::Connect(std::move(options));
}

}  // namespace meshwright::cli
