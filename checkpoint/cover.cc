#include "checkpoint/cover.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"

namespace meshwright::checkpoint {
namespace {

// Parts with so few boxes are compared pair by pair.
constexpr size_t kFew = 8;
// Of more boxes it is not said where one is missing: that takes the square of their number.
constexpr size_t kMostForHole = 4096;

using Indices = std::vector<size_t>;

bool Overlap(const ir::Box& a, const ir::Box& b) {
  for (size_t d = 0; d < a.size.size(); ++d) {
    if (a.offset[d] >= b.offset[d] + b.size[d] || b.offset[d] >= a.offset[d] + a.size[d]) {
      return false;
    }
  }
  return true;
}

// The edges of many boxes in one piece of memory: of each box per dim where it begins and ends.
class Edges {
 public:
  explicit Edges(size_t rank) : rank_(rank) {}
  void Add(const ir::Box& box) {
    for (size_t d = 0; d < rank_; ++d) {
      edges_.push_back(box.offset[d]);
      edges_.push_back(box.offset[d] + box.size[d]);
    }
  }
  size_t rank() const { return rank_; }
  int64_t Begin(size_t box, size_t dim) const { return edges_[2 * (box * rank_ + dim)]; }
  int64_t End(size_t box, size_t dim) const { return edges_[2 * (box * rank_ + dim) + 1]; }
  bool Overlap(size_t a, size_t b) const {
    for (size_t d = 0; d < rank_; ++d) {
      if (Begin(a, d) >= End(b, d) || Begin(b, d) >= End(a, d)) return false;
    }
    return true;
  }

 private:
  const size_t rank_;
  std::vector<int64_t> edges_;
};

struct Cut {
  size_t dim = 0;
  int64_t at = 0;
  size_t crossed = 0;
};

// Finds two boxes that overlap, by parts of space.
class OverlapFinder {
 public:
  explicit OverlapFinder(const Edges& boxes) : boxes_(boxes) {}

  std::optional<std::pair<size_t, size_t>> Find(const Indices& part) {
    if (part.size() <= kFew) return AmongFew(part);
    const std::optional<Cut> cut = BestCut(part);
    if (!cut) return AmongFew(part);  // no edge separates any of them
    Indices below, above;
    below.reserve(part.size() / 2 + cut->crossed + 1);
    above.reserve(part.size() / 2 + cut->crossed + 1);
    for (const size_t i : part) {
      if (boxes_.Begin(i, cut->dim) < cut->at) below.push_back(i);
      if (boxes_.End(i, cut->dim) > cut->at) above.push_back(i);
    }
    if (below.size() == part.size() || above.size() == part.size()) return AmongFew(part);
    if (const auto found = Find(below)) return found;
    return Find(above);
  }

 private:
  std::optional<std::pair<size_t, size_t>> AmongFew(const Indices& part) const {
    for (size_t i = 0; i < part.size(); ++i) {
      for (size_t j = i + 1; j < part.size(); ++j) {
        if (boxes_.Overlap(part[i], part[j])) return std::pair(part[i], part[j]);
      }
    }
    return std::nullopt;
  }

  // The median of where boxes begin behind the first, in the dim where it crosses fewest.
  std::optional<Cut> BestCut(const Indices& part) {
    std::optional<Cut> best;
    for (size_t dim = 0; dim < boxes_.rank() && !(best && best->crossed == 0); ++dim) {
      int64_t first = INT64_MAX;
      for (const size_t i : part) first = std::min(first, boxes_.Begin(i, dim));
      begins_.clear();
      for (const size_t i : part) {
        if (boxes_.Begin(i, dim) > first) begins_.push_back(boxes_.Begin(i, dim));
      }
      if (begins_.empty()) continue;
      const auto middle = begins_.begin() + static_cast<ptrdiff_t>(begins_.size() / 2);
      std::nth_element(begins_.begin(), middle, begins_.end());
      const Cut cut = CutAt(part, dim, *middle);
      if (!best || cut.crossed < best->crossed) best = cut;
    }
    return best;
  }

  Cut CutAt(const Indices& part, size_t dim, int64_t at) const {
    Cut cut{dim, at, 0};
    for (const size_t i : part) {
      cut.crossed += boxes_.Begin(i, dim) < at && boxes_.End(i, dim) > at ? 1 : 0;
    }
    return cut;
  }

  const Edges& boxes_;
  std::vector<int64_t> begins_;  // of the part at hand
};

// An element of `region` that no box has: the first box's edges split what is left.
std::optional<ir::Dims> FindHole(const ir::Box& region, std::span<const ir::Box> boxes) {
  if (IsEmpty(region)) return std::nullopt;
  const std::vector<size_t> here = Overlapping(region, boxes);
  if (here.empty()) return region.offset;
  const ir::Box inner = Intersection(region, boxes[here[0]]);
  ir::Box rest = region;
  for (size_t d = 0; d < region.size.size(); ++d) {
    ir::Box side = rest;
    side.size[d] = inner.offset[d] - rest.offset[d];
    if (auto hole = FindHole(side, boxes)) return hole;
    side = rest;
    side.offset[d] = inner.offset[d] + inner.size[d];
    side.size[d] = rest.offset[d] + rest.size[d] - side.offset[d];
    if (auto hole = FindHole(side, boxes)) return hole;
    rest.offset[d] = inner.offset[d];
    rest.size[d] = inner.size[d];
  }
  return std::nullopt;
}

Status CheckInside(const ir::Dims& dims, const ir::Box& box) {
  bool inside = box.offset.size() == dims.size() && box.size.size() == dims.size();
  for (size_t d = 0; inside && d < dims.size(); ++d) {
    inside = box.offset[d] >= 0 && box.size[d] >= 0 && box.size[d] <= dims[d] &&
             box.offset[d] <= dims[d] - box.size[d];
  }
  if (inside) return OkStatus();
  return DataLoss(fmt::format("box {} leaves the tensor [{}]", ToText(box), fmt::join(dims, ",")));
}

}  // namespace

std::string ToText(const ir::Box& box) {
  return fmt::format("[{}:{}]", fmt::join(box.offset, ","), fmt::join(box.size, ","));
}

int64_t Volume(const ir::Box& box) {
  return std::accumulate(box.size.begin(), box.size.end(), int64_t{1}, std::multiplies<>());
}

ir::Box Explicit(const ir::Box& box, const ir::Dims& dims) {
  if (!box.size.empty() || !box.offset.empty()) return box;
  return {ir::Dims(dims.size(), 0), dims};
}

ir::Box Intersection(const ir::Box& a, const ir::Box& b) {
  MW_CHECK(a.size.size() == b.size.size()) << ToText(a) << " and " << ToText(b);
  ir::Box both{a.offset, a.size};
  for (size_t d = 0; d < a.size.size(); ++d) {
    both.offset[d] = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    both.size[d] = std::max<int64_t>(0, end - both.offset[d]);
  }
  return both;
}

bool IsEmpty(const ir::Box& box) {
  return std::any_of(box.size.begin(), box.size.end(), [](int64_t size) { return size <= 0; });
}

Status CheckExactCover(const ir::Dims& dims, std::span<const ir::Box> boxes) {
  const ir::Box whole{ir::Dims(dims.size(), 0), dims};
  std::vector<size_t> solid;  // boxes that have elements
  Edges edges(dims.size());
  int64_t covered = 0;
  const auto explicit_box = [&](size_t i) { return Explicit(boxes[i], dims); };
  for (size_t i = 0; i < boxes.size(); ++i) {
    const bool is_whole = boxes[i].size.empty() && boxes[i].offset.empty();
    const ir::Box& box = is_whole ? whole : boxes[i];
    MW_TRY(CheckInside(dims, box));
    if (IsEmpty(box)) continue;
    // Of more boxes than elements two overlap; the sum must not run over before that is found.
    covered = std::min(covered, INT64_MAX / 2) + Volume(box);
    edges.Add(box);
    solid.push_back(i);
  }
  Indices all(solid.size());
  std::iota(all.begin(), all.end(), size_t{0});
  if (const auto pair = OverlapFinder(edges).Find(all)) {
    return DataLoss(fmt::format("boxes {} and {} overlap", ToText(explicit_box(solid[pair->first])),
                                ToText(explicit_box(solid[pair->second]))));
  }
  const int64_t missing = Volume(whole) - covered;
  if (missing == 0) return OkStatus();
  std::optional<ir::Dims> hole;
  if (solid.size() <= kMostForHole) {
    std::vector<ir::Box> all_boxes;
    for (const size_t i : solid) all_boxes.push_back(explicit_box(i));
    hole = FindHole(whole, all_boxes);
  }
  return DataLoss(fmt::format("{} of {} elements are in no box{}", missing, Volume(whole),
                              hole ? fmt::format(", one at [{}]", fmt::join(*hole, ",")) : ""));
}

std::vector<size_t> Overlapping(const ir::Box& wanted, std::span<const ir::Box> boxes) {
  std::vector<size_t> indices;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (!IsEmpty(boxes[i]) && Overlap(wanted, boxes[i])) indices.push_back(i);
  }
  return indices;
}

}  // namespace meshwright::checkpoint
