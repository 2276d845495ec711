#include "security/subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace meshwright::security {
namespace {

constexpr std::string_view kScheme = "meshwright://";
constexpr std::array<Role, 4> kRoles = {Role::kController, Role::kWorker, Role::kOperator,
                                        Role::kViewer};

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kController:
      return "controller";
    case Role::kWorker:
      return "worker";
    case Role::kOperator:
      return "operator";
    case Role::kViewer:
      return "viewer";
  }
  return "viewer";
}

Result<Role> ParseRole(std::string_view text) {
  for (const Role role : kRoles) {
    if (RoleName(role) == text) return role;
  }
  return Fail(InvalidArgument(
      fmt::format("'{}' is no role; roles are controller, worker, operator, viewer", text)));
}

std::string Describe(const Subject& subject) {
  return fmt::format("{} '{}'", RoleName(subject.role), subject.name);
}

std::string FormatUri(const Subject& subject) {
  return fmt::format("{}{}/{}", kScheme, RoleName(subject.role), subject.name);
}

std::optional<Subject> ParseUri(std::string_view uri) {
  if (!uri.starts_with(kScheme)) return std::nullopt;
  uri.remove_prefix(kScheme.size());
  const size_t slash = uri.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto role = ParseRole(uri.substr(0, slash));
  const std::string_view name = uri.substr(slash + 1);
  if (!role.has_value() || !CheckName(name).ok()) return std::nullopt;
  return Subject{*role, std::string(name)};
}

Status CheckName(std::string_view name) {
  if (!name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), IsNameByte)) {
    return OkStatus();
  }
  return InvalidArgument(
      fmt::format("'{}' is no name of a certificate: 1 to 64 letters, digits, '.', '_' and '-'",
                  name.substr(0, 80)));
}

}  // namespace meshwright::security
