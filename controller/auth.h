// Who may talk to the controller: a bearer token, or nobody but this machine.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace meshwright::controller {

// Time depends on the lengths only.
bool ConstantTimeEqual(std::string_view a, std::string_view b);

// `authorization`: the value of the metadata entry of that name, empty when absent.
// Errors: kUnauthenticated saying where the token comes from.
Status CheckAuthorization(std::string_view token, std::string_view authorization);

// Errors: kInvalidArgument when `bind` is reachable from other machines and there is no token.
Status CheckBind(const std::string& bind, const std::string& token);

}  // namespace meshwright::controller
