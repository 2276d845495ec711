#include "base/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/utf8.h"

namespace meshwright {

std::string FormatTable(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows) {
  // Names in them are others': a cell is one line, and changes nothing of what a terminal shows.
  std::vector<std::vector<std::string>> cells = rows;
  for (auto& row : cells) {
    for (std::string& cell : row) cell = Printable(cell);
  }
  std::vector<size_t> width(header.size(), 0);
  const auto widen = [&](const std::vector<std::string>& row) {
    MW_CHECK(row.size() <= header.size()) << "a row has more cells than the table has columns";
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  };
  widen(header);
  for (const auto& row : cells) widen(row);
  std::string text;
  const auto append = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}", row[i], width[i] + 2);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  append(header);
  for (const auto& row : cells) append(row);
  return text;
}

}  // namespace meshwright
