#include "table.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numbers>
#include <random>
#include <sstream>

namespace tabular_classifier {
namespace {

using meshwright::Result;

Result<std::vector<double>> ParseLine(const std::string& line) {
  std::vector<double> numbers;
  std::istringstream cells(line);
  for (std::string cell; std::getline(cells, cell, ',');) {
    size_t used = 0;
    double number = 0;
    std::istringstream text(cell);
    if (text >> number) used = text.eof() ? cell.size() : static_cast<size_t>(text.tellg());
    if (used != cell.size() || !std::isfinite(number)) {
      return Fail(meshwright::InvalidArgument("\"" + cell + "\" is no number"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

meshwright::Status AddRow(const std::vector<double>& numbers, Table& table) {
  if (numbers.size() < 2) return meshwright::InvalidArgument("needs features and a class");
  const auto features = static_cast<int64_t>(numbers.size()) - 1;
  if (table.y.empty()) table.features = features;
  if (features != table.features) {
    return meshwright::InvalidArgument("has " + std::to_string(features) +
                                       " features, the lines before " +
                                       std::to_string(table.features));
  }
  constexpr double kMostClasses = 10'000;
  const double label = numbers.back();
  if (label < 0 || label >= kMostClasses || label != std::floor(label)) {
    return meshwright::InvalidArgument("the last number is the class: 0, 1, 2, ...");
  }
  table.x.insert(table.x.end(), numbers.begin(), numbers.end() - 1);
  table.y.push_back(static_cast<int32_t>(label));
  table.classes = std::max(table.classes, static_cast<int64_t>(label) + 1);
  return {};
}

void Standardize(Table& table) {
  const auto features = static_cast<size_t>(table.features);
  for (size_t feature = 0; feature < features; ++feature) {
    double sum = 0;
    double squares = 0;
    for (size_t i = feature; i < table.x.size(); i += features) sum += table.x[i];
    const double mean = sum / static_cast<double>(table.rows());
    for (size_t i = feature; i < table.x.size(); i += features) {
      squares += (table.x[i] - mean) * (table.x[i] - mean);
    }
    const double deviation = std::sqrt(squares / static_cast<double>(table.rows()));
    for (size_t i = feature; i < table.x.size(); i += features) {
      table.x[i] = deviation > 0 ? (table.x[i] - mean) / deviation : 0;
    }
  }
}

}  // namespace

Table Spirals(int64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> along(0.1, 1);
  std::normal_distribution<double> noise(0, 0.02);
  Table table{.features = 2, .classes = 3, .x = {}, .y = {}};
  for (int64_t row = 0; row < rows; ++row) {
    const auto label = static_cast<int32_t>(row % table.classes);
    const double radius = along(random);
    const double angle = 2 * std::numbers::pi * (0.75 * radius + label / 3.0);
    table.x.push_back(radius * std::cos(angle) + noise(random));
    table.x.push_back(radius * std::sin(angle) + noise(random));
    table.y.push_back(label);
  }
  return table;
}

Result<Table> ReadTable(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Fail(meshwright::NotFound("cannot read " + path));
  Table table;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const auto numbers = ParseLine(line);
    const bool names = number == 1 && !numbers.has_value();
    if (names) continue;
    const auto added = numbers.has_value() ? AddRow(*numbers, table) : numbers.error();
    MW_TRY(added.WithContext(path + ":" + std::to_string(number)));
  }
  Standardize(table);
  return table;
}

}  // namespace tabular_classifier
