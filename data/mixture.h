// Which part of a mixture a sample is of: a pure function of the weights and the sample's number.
//
// Of any first n samples a part has n times its share of the weights, rounded down, or one more or
// less for each part before it: proportions are exact, parts take turns, and any sample is found
// without the ones before it, so a job goes on at any sample on any layout.
//
// Thread rule: pure functions. Source: Bresenham, "Algorithm for computer control of a digital
// plotter", IBM Systems Journal 4(1), 1965, nested: the first part against all others, then the
// second among these, and so on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/data_spec.h"

namespace meshwright::data {

struct MixedSample {
  size_t part = 0;
  int64_t sample = 0;  // of the part, from 0
  friend bool operator==(const MixedSample&, const MixedSample&) = default;
};

// REQUIRES: sample >= 0; weights that are at least 1, of which there is one.
MixedSample SampleOfMixture(const std::vector<int64_t>& weights, int64_t sample);

// Whether no part of a stream weighs anything: they are one text in several forms, each of which is
// read as a whole before the next one.
bool TakesTurns(const std::vector<ir::DataPart>& parts);

// Parts that are read in turns: `counts[0]` samples of the first, then of the second, and again.
MixedSample SampleOfTurns(const std::vector<int64_t>& counts, int64_t sample);

}  // namespace meshwright::data
