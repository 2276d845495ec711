#include "ops/einsum_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops {
namespace {

using Stride = int64_t EinsumLoop::*;

// Adds the dims of one tensor to the labels seen so far. Returns what is wrong, or nothing.
std::string AddTensor(std::string_view labels, const ir::Dims& dims, Stride stride,
                      std::vector<EinsumLoop>& loops) {
  if (labels.size() != dims.size()) {
    return fmt::format("'{}' has {} labels for rank {}", labels, labels.size(), dims.size());
  }
  const ir::Dims strides = RowMajorStrides(dims);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels.find(labels[i], i + 1) != std::string_view::npos) {
      return fmt::format("label '{}' occurs twice in '{}'", labels[i], labels);
    }
    auto loop = std::find_if(loops.begin(), loops.end(),
                             [&](const EinsumLoop& l) { return l.label == labels[i]; });
    if (loop == loops.end()) {
      loops.push_back({labels[i], dims[i]});
      loop = loops.end() - 1;
    }
    if (loop->size != dims[i]) {
      return fmt::format("label '{}' is {} and {}", labels[i], loop->size, dims[i]);
    }
    (*loop).*stride = strides[i];
  }
  return "";
}

struct Equation {
  std::string_view a;
  std::string_view b;
  std::string_view c;
};

std::optional<Equation> Split(std::string_view text) {
  const size_t comma = text.find(',');
  const size_t arrow = text.find("->");
  if (comma == std::string_view::npos || arrow == std::string_view::npos || comma > arrow) {
    return std::nullopt;
  }
  return Equation{text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
                  text.substr(arrow + 2)};
}

std::vector<EinsumLoop> MergeGroup(std::vector<EinsumLoop> loops, Stride major) {
  std::erase_if(loops, [](const EinsumLoop& loop) { return loop.size == 1; });
  std::stable_sort(loops.begin(), loops.end(),
                   [&](const EinsumLoop& x, const EinsumLoop& y) { return x.*major > y.*major; });
  std::vector<EinsumLoop> merged;
  for (const EinsumLoop& loop : loops) {
    if (!merged.empty()) {
      EinsumLoop& last = merged.back();
      if (last.a == loop.a * loop.size && last.b == loop.b * loop.size &&
          last.c == loop.c * loop.size) {
        const int64_t size = last.size * loop.size;
        last = loop;
        last.size = size;
        continue;
      }
    }
    merged.push_back(loop);
  }
  return merged;
}

// Can a BLAS read the matrix with these two loops (strides r and s)? With a single row or column
// any stride is a leading dimension.
bool UnitStride(const EinsumLoop& x, int64_t r, const EinsumLoop& y, int64_t s) {
  return x.size == 1 || y.size == 1 || r == 1 || s == 1;
}

bool Runs(const EinsumLoop& m, const EinsumLoop& n, const EinsumLoop& k) {
  return UnitStride(m, m.a, k, k.a) && UnitStride(k, k.b, n, n.b) && UnitStride(m, m.c, n, n.c);
}

std::vector<EinsumLoop> OrOne(const std::vector<EinsumLoop>& loops) {
  return loops.empty() ? std::vector<EinsumLoop>{EinsumLoop{}} : loops;
}

void AppendOthers(const std::vector<EinsumLoop>& loops, size_t chosen,
                  std::vector<EinsumLoop>& out) {
  MW_CHECK(chosen < loops.size()) << "loop " << chosen << " of " << loops.size();
  for (size_t i = 0; i < loops.size(); ++i) {
    if (i != chosen) out.push_back(loops[i]);
  }
}

}  // namespace

Result<EinsumLoops> ClassifyEinsum(std::string_view equation, const ir::Dims& a, const ir::Dims& b,
                                   const ir::Dims& c) {
  std::vector<EinsumLoop> loops;
  std::string wrong = "expected the form \"ab,bc->ac\"";
  const std::optional<Equation> parts = Split(equation);
  if (parts) wrong = AddTensor(parts->a, a, &EinsumLoop::a, loops);
  if (parts && wrong.empty()) wrong = AddTensor(parts->b, b, &EinsumLoop::b, loops);
  if (parts && wrong.empty()) wrong = AddTensor(parts->c, c, &EinsumLoop::c, loops);
  EinsumLoops result;
  for (const EinsumLoop& loop : loops) {
    if (!wrong.empty()) break;
    const auto has = [&](std::string_view labels) {
      return labels.find(loop.label) != std::string_view::npos;
    };
    const bool in_a = has(parts->a);
    const bool in_b = has(parts->b);
    const bool in_c = has(parts->c);
    if (in_a + in_b + in_c < 2) {
      wrong = fmt::format("label '{}' occurs only once", loop.label);
    } else {
      (in_a ? (in_b ? (in_c ? result.batch : result.k) : result.m) : result.n).push_back(loop);
    }
  }
  if (wrong.empty()) return result;
  return Fail(
      InvalidArgument(fmt::format("einsum \"{}\" of [{}], [{}] -> [{}]: {}", equation,
                                  fmt::join(a, ","), fmt::join(b, ","), fmt::join(c, ","), wrong)));
}

EinsumLoops MergeLoops(EinsumLoops loops) {
  return {MergeGroup(std::move(loops.batch), &EinsumLoop::c),
          MergeGroup(std::move(loops.m), &EinsumLoop::c),
          MergeGroup(std::move(loops.n), &EinsumLoop::c),
          MergeGroup(std::move(loops.k), &EinsumLoop::a)};
}

std::optional<GemmLoops> ChooseGemm(const EinsumLoops& merged) {
  const std::vector<EinsumLoop> m = OrOne(merged.m);
  const std::vector<EinsumLoop> n = OrOne(merged.n);
  const std::vector<EinsumLoop> k = OrOne(merged.k);
  std::optional<GemmLoops> best;
  int64_t best_volume = -1;
  for (size_t x = 0; x < m.size(); ++x) {
    for (size_t y = 0; y < n.size(); ++y) {
      for (size_t z = 0; z < k.size(); ++z) {
        const int64_t volume = m[x].size * n[y].size * k[z].size;
        if (volume <= best_volume || !Runs(m[x], n[y], k[z])) continue;
        best_volume = volume;
        best = GemmLoops{m[x], n[y], k[z], merged.batch, {}};
        AppendOthers(m, x, best->outer);
        AppendOthers(n, y, best->outer);
        AppendOthers(k, z, best->depth);
      }
    }
  }
  return best;
}

}  // namespace meshwright::ops
