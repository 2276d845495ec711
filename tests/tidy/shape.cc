// Sizes, header comments, banned calls.
#include <fmt/format.h>

#include <array>

#include "base/text.h"
#include "tests/tidy/rules.h"
#include "tests/tidy/scopes.h"

namespace meshwright::tidy {
namespace {

constexpr size_t kMaxFileLines = 600;
constexpr size_t kMaxHeaderLines = 300;
constexpr size_t kMaxColumns = 100;
constexpr int kMaxFunctionLines = 70;

// Columns of a UTF-8 line: bytes that do not continue a code point.
size_t Columns(std::string_view line) {
  size_t columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return columns;
}

bool StartsWithAny(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  for (const std::string_view prefix : prefixes) {
    if (text.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

struct Ban {
  std::string_view word;
  std::string_view instead;
};

constexpr std::array<Ban, 11> kBans = {{
    {"sleep_for", "wait on a condition with a Deadline"},
    {"sleep_until", "wait on a condition with a Deadline"},
    {"usleep", "wait on a condition with a Deadline"},
    {"nanosleep", "wait on a condition with a Deadline"},
    {"sleep(", "wait on a condition with a Deadline"},
    {"rand(", "use base/philox.h: a function of (seed, step, index)"},
    {"srand(", "use base/philox.h: a function of (seed, step, index)"},
    {"std::endl", "write '\\n'"},
    {"[=]", "name what the lambda captures"},
    {"[=,", "name what the lambda captures"},
    {"using namespace", "name what is used"},
}};

// nlohmann's ways to a whole number, which take every number; std::get and absl::get are others.
constexpr std::array<std::string_view, 12> kIntTypes = {"int",
                                                        "uint",
                                                        "size_t",
                                                        "unsigned",
                                                        "long",
                                                        "short",
                                                        "char",
                                                        "std::int",
                                                        "std::uint",
                                                        "std::size_t",
                                                        "std::vector<int",
                                                        "std::vector<size_t"};

bool TakesJsonIntUnchecked(std::string_view code) {
  for (const std::string_view call : {".get<", "->get<", ".template get<"}) {
    for (size_t at = code.find(call); at != code.npos; at = code.find(call, at + 1)) {
      const std::string_view type = code.substr(at + call.size());
      for (const std::string_view one : kIntTypes) {
        if (type.starts_with(one)) return true;
      }
    }
  }
  if (ContainsWord(code, "get_to(") || ContainsWord(code, "NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE") ||
      ContainsWord(code, "NLOHMANN_DEFINE_TYPE_INTRUSIVE")) {
    return true;
  }
  // What value("key", 0) falls back to says its type.
  for (size_t at = code.find(".value("); at != code.npos; at = code.find(".value(", at + 1)) {
    const size_t comma = code.find(", ", at);
    const size_t close = code.find(')', at);
    if (comma == code.npos || comma > close) continue;
    const std::string_view fallback = code.substr(comma + 2);
    if (fallback.starts_with('-') || (fallback[0] >= '0' && fallback[0] <= '9')) return true;
    for (const std::string_view one : kIntTypes) {
      if (fallback.starts_with(one)) return true;
    }
  }
  return false;
}

bool MayStartThreads(std::string_view path) {
  return StartsWithAny(path, {"base/", "collective/cpu/", "collective/nccl/", "worker/"});
}

}  // namespace

Violations CheckSizes(const SourceTree& tree) {
  Violations violations;
  for (const auto& [path, file] : tree) {
    const size_t limit = IsHeader(path) ? kMaxHeaderLines : kMaxFileLines;
    if (file.lines.size() > limit) {
      violations.push_back(fmt::format("{}: {} lines, at most {}; split it by noun", path,
                                       file.lines.size(), limit));
    }
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const size_t columns = Columns(file.lines[i]);
      if (columns <= kMaxColumns) continue;
      violations.push_back(
          fmt::format("{}:{}: {} columns, at most {}", path, i + 1, columns, kMaxColumns));
    }
  }
  return violations;
}

Violations CheckFunctionLength(const SourceTree& tree) {
  Violations violations;
  for (const auto& [path, file] : tree) {
    for (const FunctionScope& function : FindScopes(file).functions) {
      const int lines = function.last - function.first;
      if (lines <= kMaxFunctionLines) continue;
      violations.push_back(fmt::format("{}:{}: function {} of {} lines, at most {}", path,
                                       function.first, function.name, lines, kMaxFunctionLines));
    }
  }
  return violations;
}

Violations CheckHeaderComments(const SourceTree& tree) {
  Violations violations;
  for (const auto& [path, file] : tree) {
    if (!IsHeader(path)) continue;
    if (file.lines.empty() || file.lines[0].rfind("// ", 0) != 0) {
      violations.push_back(path + ":1: a header starts with a comment: purpose, idea, thread rule");
    }
    bool guarded = false;
    for (const std::string& line : file.code_lines) guarded |= line.rfind("#pragma once", 0) == 0;
    // Highway includes its own kernel files several times, by design.
    guarded |= path.find("-inl.h") != std::string::npos || path.find("_inl.h") != std::string::npos;
    if (!guarded) violations.push_back(path + ": no #pragma once");
  }
  return violations;
}

Violations CheckBannedCalls(const SourceTree& tree) {
  Violations violations;
  for (const auto& [path, file] : tree) {
    if (RoomOf(path) == "tests") continue;
    for (size_t i = 0; i < file.code_lines.size(); ++i) {
      const std::string& code = file.code_lines[i];
      for (const Ban& ban : kBans) {
        if (!ContainsWord(code, ban.word)) continue;
        violations.push_back(fmt::format("{}:{}: {}: {}", path, i + 1, ban.word, ban.instead));
      }
      const bool thread = ContainsWord(code, "std::thread") || ContainsWord(code, "std::jthread") ||
                          ContainsWord(code, "std::async");
      if (thread && !MayStartThreads(path)) {
        violations.push_back(
            fmt::format("{}:{}: threads start only in base, collective and worker; use an "
                        "Executor",
                        path, i + 1));
      }
    }
  }
  return violations;
}

Violations CheckJsonInts(const SourceTree& tree) {
  Violations violations;
  for (const auto& [path, file] : tree) {
    if (RoomOf(path) == "tests" || path == "base/json_int.h") continue;
    for (size_t i = 0; i < file.code_lines.size(); ++i) {
      if (!TakesJsonIntUnchecked(file.code_lines[i])) continue;
      violations.push_back(fmt::format(
          "{}:{}: takes any number of a JSON for a whole one; use base/json_int.h", path, i + 1));
    }
  }
  return violations;
}

}  // namespace meshwright::tidy
