// What is counted: checks of invariants, casts of ids.
#include <fmt/format.h>

#include "base/text.h"
#include "tests/tidy/rules.h"

namespace meshwright::tidy {
namespace {

constexpr std::string_view kCast = "static_cast<size_t>(";

// The text behind the "(" at `open` up to its ")".
std::string_view Argument(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : 0;
    depth -= text[i] == ')' ? 1 : 0;
    if (depth == 0) return text.substr(open + 1, i - open - 1);
  }
  return "";  // goes on in the next line
}

int CountChecks(std::string_view code) {
  int count = 0;
  for (const std::string_view word : {"MW_CHECK(", "MW_DCHECK("}) {
    for (size_t at = code.find(word); at != code.npos; at = code.find(word, at + 1)) ++count;
  }
  return count;
}

struct RoomCount {
  int lines = 0;
  int checks = 0;
};

// Lines of C++ that hold more than a comment.
std::map<std::string, RoomCount> CountRooms(const SourceTree& tree) {
  std::map<std::string, RoomCount> rooms;
  for (const auto& [path, file] : tree) {
    if (!path.ends_with(".h") && !path.ends_with(".cc")) continue;
    RoomCount& room = rooms[RoomOf(path)];
    for (const std::string& code : file.code_lines) {
      room.lines += Trim(code).empty() ? 0 : 1;
      room.checks += CountChecks(code);
    }
  }
  return rooms;
}

}  // namespace

Violations CheckIdCasts(const SourceTree& tree) {
  Violations violations;
  for (const auto& [path, file] : tree) {
    if (path == "base/ids.h") continue;
    for (size_t i = 0; i < file.code_lines.size(); ++i) {
      const std::string_view code = file.code_lines[i];
      for (size_t at = code.find(kCast); at != code.npos; at = code.find(kCast, at + 1)) {
        const std::string_view argument = Argument(code, at + kCast.size() - 1);
        if (!argument.ends_with(".value()")) continue;
        violations.push_back(fmt::format(
            "{}:{}: static_cast<size_t>({}): write .index(), or make the vector an IdVector", path,
            i + 1, argument));
      }
    }
  }
  return violations;
}

Violations CheckDensityOfChecks(const SourceTree& tree, const std::map<std::string, int>& least) {
  Violations violations;
  std::map<std::string, RoomCount> rooms = CountRooms(tree);
  for (const auto& [name, per_1000_lines] : least) {
    const RoomCount& room = rooms[name];
    const int has = room.lines == 0 ? 0 : room.checks * 1000 / room.lines;
    if (has >= per_1000_lines) continue;
    violations.push_back(fmt::format(
        "{}: {} MW_CHECKs in {} lines, at least {} in 1000; check what must hold whatever the "
        "input is",
        name, room.checks, room.lines, per_1000_lines));
  }
  return violations;
}

}  // namespace meshwright::tidy
