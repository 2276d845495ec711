// einsum against its definition: for random equations every backend equals the sum over all label
// assignments.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "tests/conformance/ops/op_harness.h"

namespace meshwright::ops {
namespace {

struct Equation {
  std::string a, b, c;
  std::map<char, int64_t> sizes;

  ir::Dims Dims(const std::string& labels) const {
    ir::Dims dims;
    for (char label : labels) dims.push_back(sizes.at(label));
    return dims;
  }
  std::string Text() const { return a + "," + b + "->" + c; }
};

std::string Shuffled(std::string labels) {
  for (size_t i = labels.size(); i > 1; --i) {
    std::swap(labels[i - 1], labels[*rc::gen::inRange<size_t>(0, i)]);
  }
  return labels;
}

// Up to two labels of each kind (batch, m, n, k) in any order within each tensor.
Equation RandomEquation() {
  Equation equation;
  char next = 'a';
  const auto add = [&](bool in_a, bool in_b, bool in_c) {
    const int count = *rc::gen::inRange(0, 3);
    for (int i = 0; i < count; ++i, ++next) {
      equation.sizes[next] = *rc::gen::element<int64_t>(1, 2, 3, 5, 12);
      if (in_a) equation.a += next;
      if (in_b) equation.b += next;
      if (in_c) equation.c += next;
    }
  };
  add(true, true, true);
  add(true, false, true);
  add(false, true, true);
  add(true, true, false);
  equation.a = Shuffled(equation.a);
  equation.b = Shuffled(equation.b);
  equation.c = Shuffled(equation.c);
  return equation;
}

int64_t OffsetOf(const Equation& equation, const std::string& labels,
                 const std::map<char, int64_t>& at) {
  int64_t offset = 0;
  for (char label : labels) offset = offset * equation.sizes.at(label) + at.at(label);
  return offset;
}

std::vector<double> ByDefinition(const Equation& equation, const std::vector<double>& a,
                                 const std::vector<double>& b) {
  int64_t results = 1;
  for (int64_t size : equation.Dims(equation.c)) results *= size;
  std::vector<double> c(static_cast<size_t>(results), 0.0);
  int64_t assignments = 1;
  for (const auto& [label, size] : equation.sizes) assignments *= size;
  for (int64_t i = 0; i < assignments; ++i) {
    std::map<char, int64_t> at;
    int64_t rest = i;
    for (const auto& [label, size] : equation.sizes) {
      at[label] = rest % size;
      rest /= size;
    }
    c[static_cast<size_t>(OffsetOf(equation, equation.c, at))] +=
        a[static_cast<size_t>(OffsetOf(equation, equation.a, at))] *
        b[static_cast<size_t>(OffsetOf(equation, equation.b, at))];
  }
  return c;
}

TEST(EinsumProperty, EqualsTheSumOverAllAssignmentsOfItsLabels) {
  const bool held = rc::check([] {
    const Equation equation = RandomEquation();
    int64_t assignments = 1;
    for (const auto& [label, size] : equation.sizes) assignments *= size;
    RC_PRE(assignments <= 20000);
    const OpCase op_case{"einsum",
                         ir::Op::kEinsum,
                         {{"equation", equation.Text()}},
                         {{equation.Dims(equation.a)}, {equation.Dims(equation.b)}},
                         {}};
    const std::vector<HostTensor> data = DataOf(op_case, 17);
    const std::vector<double> expected =
        ByDefinition(equation, ValuesOf(data[0]), ValuesOf(data[1]));
    for (const Backend backend : {Backend::kReference, Backend::kCpu}) {
      for (const ir::DType dtype : {ir::DType::kF64, ir::DType::kF32}) {
        const auto graph = GraphOf(op_case, dtype);
        RC_ASSERT(graph.has_value());
        const auto result = EvaluateWith(*graph, {backend, {}}, data);
        RC_ASSERT(result.has_value());
        const HostTensor want =
            FromValues(graph->type(graph->outputs[0].value).dims, expected, ir::DType::kF64);
        const double limit = dtype == ir::DType::kF64 ? 1e-13 : 3e-6;
        RC_ASSERT(RelativeError((*result)[0], want) <= limit);
      }
    }
  });
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace meshwright::ops
