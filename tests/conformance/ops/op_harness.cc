#include "tests/conformance/ops/op_harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "base/philox.h"
#include "ir/builder.h"
#include "ir/schema.h"

namespace meshwright::ops {
namespace {

// Operands are of size one: a result that cancels to nothing is compared by its absolute error.
constexpr double kSmallestScale = 0.05;

ValueId AddInput(ir::Builder& builder, const std::string& name, ir::TensorType type) {
  return builder.AddOne(ir::Op::kInput, {}, {{"name", name}}, {std::move(type)});
}

bool IsHalf(ir::DType dtype) { return dtype == ir::DType::kBF16 || dtype == ir::DType::kF16; }

ir::Attrs AttrsOf(const OpCase& op_case, ir::DType dtype) {
  ir::Attrs attrs = op_case.attrs;
  if (dtype != ir::DType::kBF16) return attrs;
  for (const auto& [name, value] : op_case.half_attrs.values()) attrs.Set(name, value);
  return attrs;
}

// The operands in `dtype`, but those in f32 that the op wants in f32 (statistics of 16-bit
// tensors): as few as it accepts.
std::vector<ir::TensorType> OperandTypes(const OpCase& op_case, ir::DType dtype,
                                         const std::vector<ir::TensorType>& declared) {
  std::vector<ir::TensorType> types;
  const size_t count = op_case.args.size();
  if (dtype == ir::DType::kBF16 && !op_case.half_types.empty()) {
    for (size_t i = 0; i < count; ++i) {
      types.push_back({op_case.half_types.at(i), op_case.args[i].dims});
    }
    return types;
  }
  const ir::Attrs attrs = AttrsOf(op_case, dtype);
  for (size_t wide = 0; wide <= count; ++wide) {
    for (uint32_t mask = 0; mask < (1u << count); ++mask) {
      if (static_cast<size_t>(std::popcount(mask)) != wide) continue;
      types.clear();
      for (size_t i = 0; i < count; ++i) {
        ir::DType type = (mask >> i & 1) != 0 ? ir::DType::kF32 : dtype;
        if (op_case.args[i].kind == ArgKind::kIds) type = ir::DType::kI32;
        if (op_case.args[i].kind == ArgKind::kBool) type = ir::DType::kBool;
        types.push_back({type, op_case.args[i].dims});
      }
      if (!IsHalf(dtype)) return types;
      if (ir::InferTypes(op_case.op, attrs, types, declared)) return types;
    }
  }
  return types;
}

std::vector<ValueId> AddCase(ir::Builder& builder, const OpCase& op_case, ir::DType dtype) {
  std::vector<ir::TensorType> declared;
  for (const ir::Dims& dims : op_case.declared) declared.push_back({dtype, dims});
  std::vector<ValueId> inputs;
  for (ir::TensorType& type : OperandTypes(op_case, dtype, declared)) {
    inputs.push_back(AddInput(builder, fmt::format("x{}", inputs.size()), std::move(type)));
  }
  return builder.Add(op_case.op, inputs, AttrsOf(op_case, dtype), declared);
}

template <typename T>
HostTensor Pack(ir::DType dtype, const ir::Dims& dims, const std::vector<T>& values) {
  HostTensor tensor{{dtype, dims}, std::vector<std::byte>(values.size() * sizeof(T))};
  if (!values.empty()) std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

template <typename T>
std::vector<T> Unpack(const HostTensor& tensor) {
  std::vector<T> values(tensor.data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

HostTensor ArgData(const Arg& arg, uint64_t seed, uint64_t stream) {
  int64_t count = 1;
  for (int64_t dim : arg.dims) count *= dim;
  std::vector<double> values;
  std::vector<int32_t> ids;
  std::vector<uint8_t> bools;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t index = static_cast<uint64_t>(i);
    const double uniform = UniformFromBits(PhiloxBits(seed, stream, 0, index));
    const bool ignored = arg.ignored != INT64_MIN && i % 4 == 3;
    ids.push_back(static_cast<int32_t>(
        ignored ? arg.ignored : static_cast<int64_t>(uniform * static_cast<double>(arg.below))));
    const double value =
        arg.kind == ArgKind::kPositive ? 0.5 + uniform : PhiloxNormal(seed, stream, index);
    values.push_back(static_cast<double>(static_cast<float>(value)));
    bools.push_back(uniform < 0.5 ? 1 : 0);
  }
  if (arg.kind == ArgKind::kBool) return Pack(ir::DType::kBool, arg.dims, bools);
  if (arg.kind == ArgKind::kIds) return Pack(ir::DType::kI32, arg.dims, ids);
  return Pack(ir::DType::kF64, arg.dims, values);
}

}  // namespace

Result<ir::Graph> GraphOf(const OpCase& op_case, ir::DType dtype) {
  ir::Builder builder(op_case.name);
  const std::vector<ValueId> results = AddCase(builder, op_case, dtype);
  for (size_t i = 0; i < std::min(results.size(), op_case.compared_results); ++i) {
    builder.SetOutput(fmt::format("y{}", i), results[i]);
  }
  return builder.Finish();
}

Result<ir::Graph> GradientGraphOf(const OpCase& op_case, ir::DType dtype) {
  ir::Builder builder(op_case.name);
  const std::vector<ValueId> results = AddCase(builder, op_case, dtype);
  MW_TRY(builder.status());
  std::vector<ValueId> cotangents(results.size());
  cotangents[0] = AddInput(builder, "dy0", builder.type(results[0]));
  const ir::Node node = builder.graph().producer(results[0]);
  MW_ASSIGN_OR_RETURN(const std::vector<ValueId> grads, ir::GradientOf(builder, node, cotangents));
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i].valid()) builder.SetOutput(fmt::format("dx{}", i), grads[i]);
  }
  return builder.Finish();
}

std::vector<HostTensor> DataOf(const OpCase& op_case, uint64_t seed) {
  std::vector<HostTensor> data;
  for (size_t i = 0; i < op_case.args.size(); ++i) {
    data.push_back(ArgData(op_case.args[i], seed, i + 1));
  }
  return data;
}

HostTensor RandomTensor(const ir::Dims& dims, uint64_t seed, double scale) {
  HostTensor tensor = ArgData({dims, ArgKind::kNormal}, seed, 99);
  std::vector<double> values = Unpack<double>(tensor);
  for (double& value : values) value *= scale;
  return Pack(ir::DType::kF64, dims, values);
}

std::vector<double> ValuesOf(const HostTensor& tensor) {
  if (tensor.type.dtype == ir::DType::kF64) return Unpack<double>(tensor);
  std::vector<double> values;
  if (tensor.type.dtype == ir::DType::kF32) {
    for (float value : Unpack<float>(tensor)) values.push_back(static_cast<double>(value));
  } else if (tensor.type.dtype == ir::DType::kBF16) {
    for (uint16_t value : Unpack<uint16_t>(tensor)) {
      values.push_back(static_cast<double>(Bf16ToFloat(value)));
    }
  } else if (tensor.type.dtype == ir::DType::kF16) {
    for (uint16_t value : Unpack<uint16_t>(tensor)) {
      values.push_back(static_cast<double>(F16ToFloat(value)));
    }
  } else if (tensor.type.dtype == ir::DType::kBool) {
    for (uint8_t value : Unpack<uint8_t>(tensor)) values.push_back(value);
  } else if (tensor.type.dtype == ir::DType::kI64) {
    for (int64_t value : Unpack<int64_t>(tensor)) values.push_back(static_cast<double>(value));
  } else {
    for (int32_t value : Unpack<int32_t>(tensor)) values.push_back(value);
  }
  return values;
}

HostTensor FromValues(const ir::Dims& dims, const std::vector<double>& values, ir::DType dtype) {
  if (dtype == ir::DType::kF64) return Pack(dtype, dims, values);
  if (IsHalf(dtype)) {
    const auto round = dtype == ir::DType::kBF16 ? FloatToBf16 : FloatToF16;
    std::vector<uint16_t> halves;
    for (double value : values) halves.push_back(round(static_cast<float>(value)));
    return Pack(dtype, dims, halves);
  }
  return Pack(dtype, dims, std::vector<float>(values.begin(), values.end()));
}

HostTensor FromIds(const ir::Dims& dims, const std::vector<int32_t>& ids) {
  return Pack(ir::DType::kI32, dims, ids);
}

HostTensor Convert(const HostTensor& tensor, ir::DType dtype) {
  if (!ir::IsFloating(tensor.type.dtype)) return tensor;
  return FromValues(tensor.type.dims, ValuesOf(tensor), dtype);
}

Result<std::vector<HostTensor>> EvaluateWith(const ir::Graph& graph, const Evaluation& evaluation,
                                             const std::vector<HostTensor>& inputs) {
  size_t next = 0;
  const auto bind = [&](const ir::Node& node) -> Result<HostTensor> {
    if (next == inputs.size()) {
      return Fail(InvalidArgument("no data for input " + node.attrs.Str("name")));
    }
    const HostTensor& input = inputs[next++];
    return Convert(input, graph.type(node.outputs[0]).dtype);
  };
  return Evaluate(evaluation.target, graph, bind, evaluation.context);
}

double RelativeError(const HostTensor& a, const HostTensor& b) {
  const std::vector<double> x = ValuesOf(a);
  const std::vector<double> y = ValuesOf(b);
  if (x.size() != y.size()) return std::numeric_limits<double>::infinity();
  double largest = kSmallestScale;
  double difference = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) || std::isnan(y[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(y[i]));
    difference = std::max(difference, std::abs(x[i] - y[i]));
  }
  return difference / largest;
}

HostTensor Block(const HostTensor& tensor, const ir::Dims& start, const ir::Dims& dims) {
  HostTensor block{{tensor.type.dtype, dims}, {}};
  block.data.resize(static_cast<size_t>(block.type.bytes()));
  const int64_t bytes = ir::DTypeBytes(tensor.type.dtype);
  for (int64_t i = 0; i < block.type.elements(); ++i) {
    int64_t rest = i;
    int64_t stride = 1;
    int64_t source = 0;
    bool inside = true;
    for (size_t d = dims.size(); d-- > 0;) {
      const int64_t index = start[d] + rest % dims[d];
      rest /= dims[d];
      inside = inside && index < tensor.type.dims[d];
      source += index * stride;
      stride *= tensor.type.dims[d];
    }
    if (inside) {
      std::memcpy(block.data.data() + i * bytes, tensor.data.data() + source * bytes,
                  static_cast<size_t>(bytes));
    }
  }
  return block;
}

}  // namespace meshwright::ops
