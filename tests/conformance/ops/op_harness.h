// Runs single ops on host tensors: the ground of the op conformance tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/kernel.h"
#include "tests/conformance/ops/ops_cases.h"

namespace meshwright::ops {

// A graph of `input` nodes named "x0", "x1", ... and one node; outputs "y0", "y1", ....
Result<ir::Graph> GraphOf(const OpCase& op_case, ir::DType dtype);

// The gradient of `op_case` built by ir::GradientOf. Inputs: the op's operands, then one cotangent
// "dy0" for the first result. Outputs "dx<i>" for every operand that has a gradient.
Result<ir::Graph> GradientGraphOf(const OpCase& op_case, ir::DType dtype);

// Deterministic operand data in f64 and i32.
std::vector<HostTensor> DataOf(const OpCase& op_case, uint64_t seed);
HostTensor RandomTensor(const ir::Dims& dims, uint64_t seed, double scale = 1);

// Converts floating tensors; integer ones stay. f32 values are exact in f64.
HostTensor Convert(const HostTensor& tensor, ir::DType dtype);
std::vector<double> ValuesOf(const HostTensor& tensor);
HostTensor FromValues(const ir::Dims& dims, const std::vector<double>& values, ir::DType dtype);
HostTensor FromIds(const ir::Dims& dims, const std::vector<int32_t>& ids);

// Evaluates a graph whose inputs are named by `names` (default x0, x1, ...).
struct Evaluation {
  Target target = Backend::kReference;
  RunContext context;
};
Result<std::vector<HostTensor>> EvaluateWith(const ir::Graph& graph, const Evaluation& evaluation,
                                             const std::vector<HostTensor>& inputs);

// Largest |a - b| over the tensor, relative to the largest |b| (at least 0.05). NaN anywhere gives
// infinity.
double RelativeError(const HostTensor& a, const HostTensor& b);

// The block at `start` with shape `dims`; zeros beyond the edge.
HostTensor Block(const HostTensor& tensor, const ir::Dims& start, const ir::Dims& dims);

}  // namespace meshwright::ops
