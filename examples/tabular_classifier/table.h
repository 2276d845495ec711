// Rows of numbers, each with a class: from a file, or made up.
//
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tabular_classifier {

struct Table {
  int64_t features = 0;
  int64_t classes = 0;
  std::vector<double> x;   // [rows, features]
  std::vector<int32_t> y;  // [rows], from 0

  int64_t rows() const { return static_cast<int64_t>(y.size()); }
};

// Three spirals in the plane, wound into each other: no straight line separates the classes.
Table Spirals(int64_t rows, uint64_t seed);

// Lines of numbers with commas between them, of which the last is the class; a first line of names
// is passed over. Each feature is shifted and scaled to mean 0 and deviation 1. Errors:
// kInvalidArgument naming the line; kNotFound.
meshwright::Result<Table> ReadTable(const std::string& path);

}  // namespace tabular_classifier
