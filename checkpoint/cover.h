// Covers: boxes that together hold every element of a tensor exactly once.
//
// A checkpoint is loaded from an exact cover or not at all: a hole would leave an element at its
// initial value, an overlap would leave open which value counts, both in silence.
//
// Boxes that lie inside the tensor, do not overlap and have its volume are a cover. Overlaps are
// sought by halving space at the edges of boxes until few are left in a part: the cut is the one
// that crosses fewest boxes, so that n boxes as layouts make them take about n log n steps.
//
// Thread rule: pure functions. Boxes have offset and size for every dim (ir::Box's empty form, the
// whole tensor, is taken, too).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace meshwright::checkpoint {

std::string ToText(const ir::Box& box);  // "[0,4:8,4]": offsets and sizes
int64_t Volume(const ir::Box& box);      // elements; REQUIRES sizes
// The box with offset and size for every dim.
ir::Box Explicit(const ir::Box& box, const ir::Dims& dims);
// Size 0 along some dim when they have nothing in common. REQUIRES explicit boxes of equal rank.
ir::Box Intersection(const ir::Box& a, const ir::Box& b);
bool IsEmpty(const ir::Box& box);

// Errors: kDataLoss naming a box that leaves the tensor, two that overlap, or how many elements are
// in no box and one of them.
Status CheckExactCover(const ir::Dims& dims, std::span<const ir::Box> boxes);

// Indices of the boxes that have elements of `wanted`, ascending.
std::vector<size_t> Overlapping(const ir::Box& wanted, std::span<const ir::Box> boxes);

}  // namespace meshwright::checkpoint
