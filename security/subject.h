// Who a certificate is for: a role and a name.
//
// On the wire it is the URI "meshwright://worker/w0" among the certificate's alternative names, so
// that certificates of an authority of one's own will do as well as those of `meshwright cert`.
//
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meshwright::security {

enum class Role : uint8_t {
  kController,  // answers as the controller
  kWorker,      // registers under its name, and moves what its jobs need
  kOperator,    // may do all that clients do
  kViewer,      // may look
};

// "controller", "worker", "operator", "viewer".
std::string_view RoleName(Role role);
// Errors: kInvalidArgument naming the roles there are.
Result<Role> ParseRole(std::string_view text);

struct Subject {
  Role role = Role::kViewer;
  std::string name;

  friend bool operator==(const Subject&, const Subject&) = default;
};

// "worker 'w0'".
std::string Describe(const Subject& subject);

std::string FormatUri(const Subject& subject);
// None: it is no such URI.
std::optional<Subject> ParseUri(std::string_view uri);

// A name is 1 to 64 letters, digits, '.', '_' and '-'. Errors: kInvalidArgument.
Status CheckName(std::string_view name);

// The name that every certificate of a controller has, and no other: who dials a controller wants
// it, wherever the controller is reached.
inline constexpr const char* kControllerName = "controller.meshwright";
// The same of workers, for who scrapes their metrics.
inline constexpr const char* kWorkerName = "worker.meshwright";

}  // namespace meshwright::security
