// How commands find the controller: the address, the token, the client.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cli/args.h"
#include "client/client.h"
#include "config/environment.h"

namespace meshwright::cli {

// Errors: kInvalidArgument unless `address` is host:port with a port of 1..65535; an IPv6 host is
// in brackets.
Status CheckAddress(const std::string& address);

// The user's config file; "" where there is no home.
std::string UserConfigPath(const config::Environment& environment);

// --address > $MESHWRIGHT_ADDRESS > address in $XDG_CONFIG_HOME (or ~/.config)
// /meshwright/config.toml > 127.0.0.1:7700. Errors: kInvalidArgument when the user's config file
// does not parse or has an unknown key, and when the address is none.
Result<std::string> ResolveAddress(const GlobalArgs& global,
                                   const config::Environment& environment);

// Whether the environment or the user's config file names a controller. Errors: those of the file.
Result<bool> SaysAddress(const config::Environment& environment);

// The content of --token-file without line end, else $MESHWRIGHT_TOKEN, else "". Errors:
// kInvalidArgument when the file is empty; those of ReadSecretFile.
Result<std::string> LoadToken(const GlobalArgs& global, const config::Environment& environment);

// What the global arguments and the environment say of it. Errors: those above; those of
// ClientIdentity (cli/identity_dirs.h).
Result<client::Client::Options> ClientOptions(const GlobalArgs& global);

// Errors: kUnavailable naming the address and how to start a controller.
Result<std::unique_ptr<client::Client>> Connect(const GlobalArgs& global);
// The same for a command that works with jobs of its own: they are marked as sessions of `tool`.
Result<std::unique_ptr<client::Client>> ConnectAs(const std::string& tool,
                                                  const GlobalArgs& global);

}  // namespace meshwright::cli
