// Which room may include which, and who may include which third-party library.
#include <fmt/format.h>

#include <functional>
#include <string_view>

#include "base/text.h"
#include "tests/tidy/rules.h"

namespace meshwright::tidy {
namespace {

struct Fence {
  std::vector<std::string_view> headers;  // prefixes of include targets; "*.x" is a suffix
  std::vector<std::string_view> allowed;  // prefixes of paths; "/x/" anywhere in the path
};

const std::vector<Fence>& Fences() {
  static const std::vector<Fence> fences = {
      {{"grpcpp/", "grpc/", "google/protobuf/", "*.pb.h"}, {"proto/", "/grpc/"}},
      {{"boost/asio"}, {"collective/cpu/tcp"}},
      {{"cuda", "cublas", "cudnn", "nvrtc"}, {"*.cu", "*.cuh"}},
      {{"nccl.h"}, {"collective/nccl/"}},
      {{"sqlite3"}, {"controller/store_sqlite.cc"}},
      {{"dnnl", "oneapi/dnnl", "hwy/"}, {"ops/cpu/"}},
      {{"spdlog/"}, {"base/log.cc"}},
      {{"pcre2.h"}, {"tokenizer/regex.cc"}},
      {{"utf8proc.h"}, {"tokenizer/unicode.cc"}},
      {{"simdjson.h"}, {"tokenizer/json.cc"}},
      {{"openssl/"}, {"base/", "security/", "collective/cpu/tcp", "tests/"}},
      {{"prometheus/", "civetweb", "CivetServer"}, {"base/metrics", "base/http_server"}},
  };
  return fences;
}

bool Matches(std::string_view text, std::string_view pattern) {
  if (pattern.front() == '*') {
    pattern.remove_prefix(1);
    return text.size() >= pattern.size() && text.substr(text.size() - pattern.size()) == pattern;
  }
  if (pattern.front() == '/') return text.find(pattern) != std::string_view::npos;
  return text.rfind(pattern, 0) == 0;
}

bool MatchesAny(std::string_view text, const std::vector<std::string_view>& patterns) {
  for (const std::string_view pattern : patterns) {
    if (Matches(text, pattern)) return true;
  }
  return false;
}

bool IsFenced(std::string_view target) {
  for (const Fence& fence : Fences()) {
    if (MatchesAny(target, fence.headers)) return true;
  }
  return false;
}

// Depth-first search for a way back; returns the cycle "a -> b -> a", or "".
std::string FindCycle(const std::map<std::string, std::set<std::string>>& edges) {
  std::set<std::string> done;
  std::vector<std::string> path;
  std::string cycle;
  const std::function<bool(const std::string&)> visit = [&](const std::string& node) {
    for (size_t i = 0; i < path.size(); ++i) {
      if (path[i] != node) continue;
      cycle =
          Join({path.begin() + static_cast<std::ptrdiff_t>(i), path.end()}, " -> ") + " -> " + node;
      return true;
    }
    const auto next = edges.find(node);
    if (next == edges.end() || done.count(node) != 0) return false;
    path.push_back(node);
    for (const std::string& target : next->second) {
      if (visit(target)) return true;
    }
    path.pop_back();
    done.insert(node);
    return false;
  };
  for (const auto& [node, targets] : edges) {
    if (visit(node)) return cycle;
  }
  return "";
}

}  // namespace

const std::map<std::string, std::set<std::string>>& AllowedEdges() {
  static const std::map<std::string, std::set<std::string>> edges = {
      {"base", {}},
      {"actor", {"base"}},
      {"security", {"base"}},
      {"ir", {"base"}},
      {"formats", {"base", "ir"}},
      {"checkpoint", {"base", "ir", "formats"}},
      {"data", {"base", "ir", "formats"}},
      {"tokenizer", {"base"}},
      {"generation", {"base", "client", "ir"}},
      {"mesh", {"base", "ir"}},
      {"device", {"base", "ir"}},
      {"proto", {"base", "ir"}},
      {"compile", {"base", "ir"}},
      {"planner", {"base", "ir", "mesh", "compile"}},
      {"search", {"base", "ir", "mesh", "compile", "planner"}},
      {"ops", {"base", "ir", "device"}},
      {"collective", {"base", "ir", "device"}},
      {"worker",
       {"base", "security", "actor", "ir", "checkpoint", "data", "proto", "device", "ops",
        "collective", "formats"}},
      {"controller",
       {"base", "security", "actor", "ir", "checkpoint", "data", "mesh", "planner", "search",
        "proto", "formats"}},
      {"client", {"base", "security", "ir", "data", "proto"}},
      {"models", {"base", "ir", "client"}},
      {"config",
       {"base", "ir", "formats", "data", "mesh", "planner", "search", "client", "models"}},
      {"report", {"base", "ir", "mesh", "planner", "search", "client", "config"}},
      {"web", {"base", "ir", "mesh", "planner", "proto", "controller", "report"}},
      {"profile", {"base", "ir", "mesh", "worker"}},
      {"rehearsal",
       {"base", "ir", "mesh", "planner", "search", "models", "config", "ops", "collective",
        "worker"}},
  };
  return edges;
}

Violations CheckEdges(const SourceTree& tree) {
  static const std::set<std::string> outer = {"cli", "tests", "bench", "examples"};
  Violations violations;
  for (const auto& [path, file] : tree) {
    const std::string room = RoomOf(path);
    const auto allowed = AllowedEdges().find(room);
    if (allowed == AllowedEdges().end()) continue;
    for (const Include& include : IncludesOf(file)) {
      const std::string target = RoomOf(include.target);
      const bool is_room = AllowedEdges().count(target) != 0 || outer.count(target) != 0;
      if (!is_room || target == room || allowed->second.count(target) != 0) continue;
      violations.push_back(fmt::format("{}:{}: {} may not include {}; allowed: {}", path,
                                       include.line, room, include.target,
                                       fmt::join(allowed->second, " ")));
    }
  }
  return violations;
}

Violations CheckTableHasNoCycle(const std::map<std::string, std::set<std::string>>& edges) {
  const std::string cycle = FindCycle(edges);
  if (cycle.empty()) return {};
  return {"rooms include each other: " + cycle};
}

Violations CheckNoIncludeCycles(const SourceTree& tree) {
  std::map<std::string, std::set<std::string>> edges;
  for (const auto& [path, file] : tree) {
    for (const Include& include : IncludesOf(file)) {
      if (tree.count(include.target) != 0) edges[path].insert(include.target);
    }
  }
  const std::string cycle = FindCycle(edges);
  if (cycle.empty()) return {};
  return {"headers include each other: " + cycle};
}

Violations CheckPublicHeaders(const SourceTree& tree, const std::set<std::string>& headers) {
  Violations violations;
  for (const std::string& header : headers) {
    const auto file = tree.find(header);
    if (file == tree.end()) {
      violations.push_back(header + ": is to be installed, but does not exist");
      continue;
    }
    for (const Include& include : IncludesOf(file->second)) {
      if (tree.count(include.target) == 0 || headers.count(include.target) != 0) continue;
      violations.push_back(
          fmt::format("{}:{}: is installed, but {} is not; make it public in "
                      "cmake/PublicHeaders.cmake, or declare what is needed without it",
                      header, include.line, include.target));
    }
  }
  return violations;
}

Violations CheckFences(const SourceTree& tree) {
  Violations violations;
  for (const auto& [path, file] : tree) {
    if (RoomOf(path) == "tests" || RoomOf(path) == "bench") continue;
    for (const Include& include : IncludesOf(file)) {
      for (const Fence& fence : Fences()) {
        if (!MatchesAny(include.target, fence.headers) || MatchesAny(path, fence.allowed)) continue;
        violations.push_back(fmt::format("{}:{}: <{}> belongs behind the fence {}", path,
                                         include.line, include.target,
                                         fmt::join(fence.allowed, ", ")));
      }
    }
  }
  return violations;
}

namespace {

// Each example is a project of its own, with its folder as the root: "maml.h" of
// "examples/maml/main.cc" is "examples/maml/maml.h".
std::string FromTheRoot(const std::string& path, const std::string& target) {
  const size_t slash = path.rfind('/');
  if (RoomOf(path) != "examples" || target.find('/') != std::string::npos) return target;
  return path.substr(0, slash + 1) + target;
}

}  // namespace

Violations CheckIncludesAreRootRelative(const SourceTree& tree) {
  Violations violations;
  for (const auto& [path, file] : tree) {
    for (const Include& include : IncludesOf(file)) {
      const std::string& line = file.lines[static_cast<size_t>(include.line) - 1];
      const bool quoted = line.find('"') != std::string::npos;
      if (!quoted || tree.count(FromTheRoot(path, include.target)) != 0) continue;
      // Generated headers, and libraries whose manuals ask for quotes (Highway).
      if (IsFenced(include.target)) continue;
      violations.push_back(
          fmt::format("{}:{}: \"{}\" is no file below the root; write the path from "
                      "the root, or <...> for other libraries",
                      path, include.line, include.target));
    }
  }
  return violations;
}

Violations CheckOwnHeaderComesFirst(const SourceTree& tree) {
  Violations violations;
  for (const auto& [path, file] : tree) {
    if (IsHeader(path)) continue;
    const std::string header = path.substr(0, path.size() - 2) + "h";
    if (tree.count(header) == 0) continue;
    const std::vector<Include> includes = IncludesOf(file);
    if (!includes.empty() && FromTheRoot(path, includes.front().target) == header) continue;
    violations.push_back(
        fmt::format("{}:{}: include \"{}\" before anything else, so that compiling this file shows "
                    "that the header needs no other",
                    path, includes.empty() ? 1 : includes.front().line, header));
  }
  return violations;
}

}  // namespace meshwright::tidy
