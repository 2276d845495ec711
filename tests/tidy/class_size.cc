// How large classes are: the body and the members that are defined outside of it.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "tests/tidy/rules.h"
#include "tests/tidy/scopes.h"

namespace meshwright::tidy {
namespace {

constexpr int kMaxClassLines = 200;
constexpr int kMaxMethods = 20;

using ClassSizes = std::map<std::string, ClassSize>;  // by "path Class"

std::string FolderOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(path.substr(0, slash == std::string_view::npos ? 0 : slash));
}

// The class that a member defined as `owner`::F in `path` belongs to: one of the same file, or of
// a header in the same folder. "" for a namespace.
std::string FindOwner(const ClassSizes& sizes, const std::string& path, const std::string& owner) {
  const std::string here = path + " " + owner;
  if (sizes.count(here) != 0) return here;
  for (const auto& [key, size] : sizes) {
    const size_t space = key.find(' ');
    const std::string_view file = std::string_view(key).substr(0, space);
    if (key.substr(space + 1) == owner && IsHeader(file) && FolderOf(file) == FolderOf(path)) {
      return key;
    }
  }
  return "";
}

ClassSizes MeasureClasses(const SourceTree& tree) {
  ClassSizes sizes;
  std::map<std::string, Scopes> scopes;
  for (const auto& [path, file] : tree) {
    if (RoomOf(path) == "tests") continue;
    scopes[path] = FindScopes(file);
    for (const ClassScope& scope : scopes[path].classes) {
      ClassSize& size = sizes[path + " " + scope.name];
      size.lines += scope.last - scope.first + 1;
      size.methods += scope.methods;
    }
  }
  for (const auto& [path, found] : scopes) {
    for (const FunctionScope& function : found.functions) {
      if (!function.outside) continue;
      const std::string owner = FindOwner(sizes, path, function.owner);
      if (!owner.empty()) sizes[owner].lines += function.last - function.first + 1;
    }
  }
  return sizes;
}

int RoundedUp(int value, int unit) { return (value + unit - 1) / unit * unit; }

bool IsLarge(const ClassSize& size) {
  return size.lines > kMaxClassLines || size.methods > kMaxMethods;
}

// Rounded, so that an entry does not change with every line that is written.
std::string Entry(const std::string& name, const ClassSize& size) {
  return fmt::format("{} {} {}", name, RoundedUp(size.lines, 50), RoundedUp(size.methods, 5));
}

}  // namespace

Violations CheckClassSizes(const SourceTree& tree, const std::vector<std::string>& allowed) {
  Violations violations;
  const ClassSizes sizes = MeasureClasses(tree);
  std::set<std::string> listed(allowed.begin(), allowed.end());
  for (const auto& [name, size] : sizes) {
    if (!IsLarge(size) || listed.erase(Entry(name, size)) != 0) continue;
    violations.push_back(fmt::format(
        "{}: {} lines and {} methods, at most {} and {}; split it by noun. What stands already is "
        "listed as: {}",
        name, size.lines, size.methods, kMaxClassLines, kMaxMethods, Entry(name, size)));
  }
  for (const std::string& entry : listed) {
    violations.push_back(entry + ": no class is that large any more; lower or remove the entry");
  }
  return violations;
}

}  // namespace meshwright::tidy
