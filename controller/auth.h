// Who may talk to the controller: a bearer token, or nobody but this machine.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace meshwright::controller {

// `authorization`: the value of the metadata entry of that name, empty when absent.
// Errors: kUnauthenticated saying where the token comes from.
Status CheckAuthorization(std::string_view token, std::string_view authorization);

// Whether nobody but this machine reaches what listens there.
bool IsLoopbackBind(const std::string& bind);

// What guards a port.
struct BindGuard {
  bool certificates = false;
  bool insecure = false;  // that was asked for
  bool token = false;
};
// Errors: kInvalidArgument when `bind` is reachable from other machines, and there are no
// certificates, or it was asked to do without and there is no token.
Status CheckBind(const std::string& bind, const BindGuard& guard);

}  // namespace meshwright::controller
