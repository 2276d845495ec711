#include "cli/connect.h"

#include <fmt/format.h>

#include <charconv>

#include "base/file.h"
#include "base/secret_file.h"
#include "base/text.h"
#include "cli/identity_dirs.h"

#define TOML_EXCEPTIONS 0
// Its assertions judge input: without them a key that is none is an error as any other.
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

namespace meshwright::cli {
namespace {

// The address in the user's file, "" without one.
Result<std::string> ReadUserConfig(const std::string& path) {
  if (path.empty() || !FileExists(path)) return std::string();
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed.succeeded()) {
    return Fail(InvalidArgument(fmt::format("{}:{}: {}", path, parsed.error().source().begin.line,
                                            parsed.error().description())));
  }
  std::string address;
  for (const auto& [name, value] : parsed.table()) {
    const auto& source = name.source().begin;
    const std::string where = fmt::format("{}:{}:{}", path, source.line, source.column);
    if (name.str() != "address") {
      return Fail(InvalidArgument(fmt::format("{}: unknown key '{}'{}; known: address", where,
                                              name.str(), DidYouMean(name.str(), {"address"}))));
    }
    if (!value.is_string()) {
      return Fail(InvalidArgument(
          where + ": address must be text, for example address = \"127.0.0.1:7700\""));
    }
    address = *value.value<std::string>();
    if (const Status status = CheckAddress(address); !status.ok())
      return Fail(status.WithContext(where));
  }
  return address;
}

}  // namespace

std::string UserConfigPath(const config::Environment& environment) {
  if (const auto folder = environment("XDG_CONFIG_HOME"); folder && !folder->empty()) {
    return *folder + "/meshwright/config.toml";
  }
  const auto home = environment("HOME");
  return home ? *home + "/.config/meshwright/config.toml" : "";
}

Status CheckAddress(const std::string& address) {
  if (address.rfind("unix:/", 0) == 0 && address.size() > 6) return OkStatus();
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const bool plain = !host.empty() && host.find_first_of(":/[] \t") == std::string::npos;
  int port = 0;
  const char* end = address.data() + address.size();
  const bool numeric =
      colon != std::string::npos &&
      std::from_chars(address.data() + colon + 1, end, port) == std::from_chars_result{end, {}};
  if ((bracketed || plain) && numeric && port >= 1 && port <= 65535) return OkStatus();
  return InvalidArgument(
      fmt::format("'{}' is no address: write host:port with a port of 1 to 65535, for example "
                  "127.0.0.1:7700, or unix:/path/of/controller.sock",
                  address));
}

Result<std::string> ResolveAddress(const GlobalArgs& global,
                                   const config::Environment& environment) {
  if (!global.address.empty()) return global.address;
  if (const auto address = environment("MESHWRIGHT_ADDRESS"); address && !address->empty()) {
    if (const Status status = CheckAddress(*address); !status.ok()) {
      return Fail(status.WithContext("$MESHWRIGHT_ADDRESS"));
    }
    return *address;
  }
  MW_ASSIGN_OR_RETURN(const std::string address, ReadUserConfig(UserConfigPath(environment)));
  if (!address.empty()) return address;
  return std::string("127.0.0.1:7700");
}

Result<bool> SaysAddress(const config::Environment& environment) {
  const auto address = environment("MESHWRIGHT_ADDRESS");
  if (address && !address->empty()) return true;
  MW_ASSIGN_OR_RETURN(const std::string in_file, ReadUserConfig(UserConfigPath(environment)));
  return !in_file.empty();
}

Result<std::string> LoadToken(const GlobalArgs& global, const config::Environment& environment) {
  if (!global.token_file.empty()) {
    MW_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(global.token_file));
    if (Trim(text).empty()) {
      return Fail(InvalidArgument(fmt::format(
          "--token-file {} is empty, which would turn the token off; write the cluster's token to "
          "it: (umask 077; head -c 24 /dev/urandom | base64 > {})",
          global.token_file, global.token_file)));
    }
    return std::string(Trim(text));
  }
  return environment("MESHWRIGHT_TOKEN").value_or("");
}

Result<client::Client::Options> ClientOptions(const GlobalArgs& global) {
  client::Client::Options options;
  MW_ASSIGN_OR_RETURN(options.address, ResolveAddress(global, config::ProcessEnvironment));
  MW_ASSIGN_OR_RETURN(options.token, LoadToken(global, config::ProcessEnvironment));
  MW_ASSIGN_OR_RETURN(options.tls_dir,
                      ClientIdentity(global.tls, options.address, config::ProcessEnvironment));
  return options;
}

Result<std::unique_ptr<client::Client>> Connect(const GlobalArgs& global) {
  return ConnectAs("", global);
}

Result<std::unique_ptr<client::Client>> ConnectAs(const std::string& tool,
                                                  const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(client::Client::Options options, ClientOptions(global));
  options.tool = tool;
  return client::Client::Connect(std::move(options));
}

}  // namespace meshwright::cli
