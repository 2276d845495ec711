#include "ops/cpu/chain.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/half.h"
#include "ir/elementwise.h"
#include "ir/fused.h"
#include "ops/cpu/mask_row.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/cpu/vec_half.h"

namespace meshwright::ops::cpu {
class Chain::Maker {
 public:
  Maker(const ir::Graph& body, const Producer& producer, const DeviceCoords& coords)
      : body_(body),
        producer_(producer.node),
        wanted_width_(producer.width),
        coords_(coords),
        places_(body.values.size()) {}

  Result<std::optional<Chain>> Run() {
    if (!Measure()) return std::optional<Chain>();
    PlaceOperands();
    if (!PlaceResults()) return std::optional<Chain>();
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const ir::Node& node = body_.nodes[i];
      if (node.op == ir::Op::kInput || static_cast<int>(i) == producer_) continue;
      if (!FitsStep(node)) return std::optional<Chain>();
      MW_TRY(AddStep(node));
    }
    FindAccumulatorResult();
    return std::optional<Chain>(std::move(chain_));
  }

 private:
  const ir::TensorType& TypeOf(ValueId id) const { return body_.type(id); }

  // The full size is that of the largest value that a step makes; the width that of the narrow
  // ones.
  bool Measure() {
    int64_t full = 0;
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const ir::Node& node = body_.nodes[i];
      if (node.op == ir::Op::kInput) continue;
      full = std::max(full, TypeOf(node.outputs[0]).elements());
    }
    int64_t width = full;
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const ir::Node& node = body_.nodes[i];
      if (node.op == ir::Op::kInput || static_cast<int>(i) == producer_) continue;
      for (ValueId id : node.inputs) width = NarrowOf(TypeOf(id).elements(), width, full);
      width = NarrowOf(TypeOf(node.outputs[0]).elements(), width, full);
    }
    if (full == 0 || width == 0 || full % width != 0) return false;
    if (producer_ >= 0) {
      const ir::Node& producer = body_.nodes[static_cast<size_t>(producer_)];
      if (TypeOf(producer.outputs[0]).elements() != full || full % wanted_width_ != 0) return false;
      if (width != full && width != wanted_width_) return false;
      width = wanted_width_;
    }
    MW_CHECK(width >= 1 && full % width == 0) << full << " elements in rows of " << width;
    chain_.rows_ = full / width;
    chain_.width_ = width;
    return true;
  }

  // The narrow size so far, with one more value; 0: two different ones.
  static int64_t NarrowOf(int64_t elements, int64_t width, int64_t full) {
    if (elements == full || elements == 1 || elements == width) return width;
    return width == full ? elements : 0;
  }

  bool IsHalf(ValueId id) const { return TypeOf(id).dtype == ir::DType::kBF16; }

  Kind KindOf(ValueId id) const {
    const int64_t elements = TypeOf(id).elements();
    if (elements == chain_.rows_ * chain_.width_) return Kind::kFull;
    return elements == 1 && chain_.width_ != 1 ? Kind::kScalar : Kind::kNarrow;
  }

  Place& PlaceOf(ValueId id) { return places_[id.index()]; }

  void PlaceOperands() {
    size_t operand = 0;
    for (const ir::Node& node : body_.nodes) {
      if (node.op != ir::Op::kInput) continue;
      const ValueId value = node.outputs[0];
      PlaceOf(value) = {KindOf(value), operand++, IsHalf(value)};
    }
    if (producer_ >= 0) {
      const ir::Node& node = body_.nodes[static_cast<size_t>(producer_)];
      PlaceOf(node.outputs[0]) = {Kind::kAccumulator, 0};
    }
  }

  // False when a result is an operand or a second name of another result.
  bool PlaceResults() {
    MW_CHECK(!body_.outputs.empty()) << "a chain that makes nothing";
    for (size_t r = 0; r < body_.outputs.size(); ++r) {
      Place& place = PlaceOf(body_.outputs[r].value);
      if (place.kind == Kind::kAccumulator && chain_.accumulator_result_ < 0) {
        chain_.accumulator_result_ = static_cast<int>(r);
        chain_.half_accumulator_ = IsHalf(body_.outputs[r].value);
      } else if (place.kind == Kind::kTemporary) {
        place = {Kind::kResult, r, IsHalf(body_.outputs[r].value)};
      } else {
        return false;
      }
    }
    return true;
  }

  // The producer's other results are ready when all rows are done.
  bool ReadsSideResult(const ir::Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      const ir::Node& maker = body_.producer(id);
      return body_.value(id).producer.value() == producer_ && maker.outputs[0] != id;
    });
  }

  bool IsOfFloats(const ir::Node& node) const {
    const auto is_float = [&](ValueId id) {
      return TypeOf(id).dtype == ir::DType::kF32 || IsHalf(id);
    };
    return std::all_of(node.inputs.begin(), node.inputs.end(), is_float) &&
           std::all_of(node.outputs.begin(), node.outputs.end(), is_float);
  }

  bool FitsStep(const ir::Node& node) {
    if (!ir::IsElementwise(node.op) && !ir::IsColumnSum(node)) return false;
    if (ReadsSideResult(node) || !IsOfFloats(node)) return false;
    if (KindOf(node.inputs[0]) != Kind::kFull) return false;
    if (node.op == ir::Op::kReduceSum) {
      return KindOf(node.outputs[0]) == Kind::kNarrow &&
             PlaceOf(node.outputs[0]).kind == Kind::kResult;
    }
    if (KindOf(node.outputs[0]) != Kind::kFull) return false;
    const bool is_formula = ir::FormulaOf(node.op) != nullptr && node.op != ir::Op::kMulScalar;
    if (is_formula && node.inputs.size() > 1 && KindOf(node.inputs[1]) == Kind::kScalar) {
      return false;
    }
    return std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      const bool made = body_.producer(id).op != ir::Op::kInput;
      return made && KindOf(id) != Kind::kFull;
    });
  }

  Place NewTemporary() {
    return {Kind::kTemporary, static_cast<size_t>(chain_.temporaries_++), false};
  }

  // Where the value is in f32; a bf16 operand is widened before its first reader.
  Place FloatPlaceOf(ValueId id) {
    Place& place = PlaceOf(id);
    if (place.half) {
      const Place wide = NewTemporary();
      chain_.steps_.push_back({ir::Op::kCast, {place}, wide});
      place = wide;
    }
    return place;
  }

  // A cast to bf16 rounds; one to f32 is another name of its operand, unless it is a result.
  void AddCast(const ir::Node& node) {
    const Place from = FloatPlaceOf(node.inputs[0]);
    Place& to = PlaceOf(node.outputs[0]);
    if (to.kind != Kind::kResult && !IsHalf(node.outputs[0])) {
      to = from;
      return;
    }
    if (to.kind != Kind::kResult) {
      to = NewTemporary();
      to.half = true;
    }
    chain_.steps_.push_back({ir::Op::kCast, {from}, to});
  }

  Status AddStep(const ir::Node& node) {
    if (node.op == ir::Op::kCast) {
      AddCast(node);
      return OkStatus();
    }
    Step step;
    step.op = node.op;
    for (ValueId id : node.inputs) step.operands.push_back(FloatPlaceOf(id));
    Place& result = PlaceOf(node.outputs[0]);
    const Place memory = result;
    const bool narrowed = result.kind == Kind::kResult && result.half && !ir::IsColumnSum(node);
    if (result.kind == Kind::kTemporary || narrowed) result = NewTemporary();
    step.result = result;
    if (node.op == ir::Op::kReduceSum) {
      step.extra = chain_.sums_.size();
      chain_.sums_.push_back(result.index);
    }
    if (ir::FormulaOf(node.op) != nullptr) {
      step.extra = chain_.formulas_.size();
      chain_.formulas_.emplace_back(node.op, node.attrs);
      chain_.formula_temporaries_ =
          std::max(chain_.formula_temporaries_, chain_.formulas_.back().temporaries());
    }
    if (node.op == ir::Op::kDropout) {
      KernelSpec spec{node.op, node.attrs, {}, {TypeOf(node.outputs[0])}, coords_};
      MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
      step.extra = chain_.dropouts_.size();
      chain_.dropouts_.push_back(
          {DropoutMask(node.attrs.Real("rate"), node.attrs.Str("name")), GlobalRuns(block)});
    }
    chain_.steps_.push_back(std::move(step));
    if (narrowed) chain_.steps_.push_back({ir::Op::kCast, {result}, memory});
    return OkStatus();
  }

  // A sum reads its third operand after it began to write its result.
  static bool ReadsAccumulator(const Step& step, size_t from) {
    return std::any_of(
        step.operands.begin() + static_cast<ptrdiff_t>(std::min(from, step.operands.size())),
        step.operands.end(), [](const Place& place) { return place.kind == Kind::kAccumulator; });
  }

  void FindAccumulatorResult() {
    if (chain_.accumulator_result_ < 0) FindFloatResult();
    if (chain_.accumulator_result_ < 0) FindHalfResult();
    if (!chain_.half_accumulator_) return;
    chain_.accumulator_copy_ = NewTemporary().index;
  }

  void FindFloatResult() {
    const std::vector<Step>& steps = chain_.steps_;
    for (size_t i = steps.size(); i-- > 0;) {
      const bool whole = steps[i].result.kind == Kind::kResult && !steps[i].result.half &&
                         steps[i].op != ir::Op::kReduceSum;
      if (whole && !ReadsAccumulator(steps[i], 2)) {
        chain_.accumulator_result_ = static_cast<int>(steps[i].result.index);
      }
      if (ReadsAccumulator(steps[i], 0)) return;
    }
  }

  // A bf16 accumulator is copied before the first step, so that any result of its size holds it.
  void FindHalfResult() {
    if (producer_ < 0 || !IsHalf(body_.nodes[static_cast<size_t>(producer_)].outputs[0])) return;
    for (const Step& step : chain_.steps_) {
      if (step.result.kind != Kind::kResult || !step.result.half) continue;
      if (step.op == ir::Op::kReduceSum) continue;
      chain_.accumulator_result_ = static_cast<int>(step.result.index);
      chain_.half_accumulator_ = true;
    }
  }

  const ir::Graph& body_;
  const int producer_;
  const int64_t wanted_width_;
  const DeviceCoords& coords_;
  std::vector<Place> places_;
  Chain chain_;
};

Result<std::optional<Chain>> Chain::Make(const ir::Graph& body, const Producer& producer,
                                         const DeviceCoords& coords) {
  return Maker(body, producer, coords).Run();
}

int64_t Chain::sums_floats() const {
  const int64_t groups = (rows_ + kSumRows - 1) / kSumRows;
  return groups * width_ * static_cast<int64_t>(sums_.size());
}

template <typename T>
const T* Chain::At(const Place& place, const Span& span, const Memory& memory) const {
  switch (place.kind) {
    case Kind::kFull:
      return memory.inputs[place.index].as<T>() + span.row * width_ + span.column;
    case Kind::kNarrow:
      return memory.inputs[place.index].as<T>() + span.column;
    case Kind::kScalar:
      return memory.inputs[place.index].as<T>();
    case Kind::kResult:
      return memory.outputs[place.index].as<T>() + span.row * width_ + span.column;
    case Kind::kAccumulator:
      return static_cast<const T*>(memory.accumulator);
    case Kind::kTemporary:
      return reinterpret_cast<const T*>(memory.scratch + static_cast<int64_t>(place.index) * kSpan);
  }
  return nullptr;
}

const float* Chain::Read(const Place& place, const Span& span, const Memory& memory) const {
  if (place.kind == Kind::kAccumulator && half_accumulator_) {
    return At<float>({Kind::kTemporary, accumulator_copy_}, span, memory);
  }
  return At<float>(place, span, memory);
}

void Chain::RunCast(const Step& step, const Span& span, const Memory& memory) const {
  const Place& from = step.operands[0];
  if (from.half) {
    const int64_t count = from.kind == Kind::kScalar ? 1 : span.count;
    VecWiden(At<uint16_t>(from, span, memory), const_cast<float*>(Read(step.result, span, memory)),
             count);
    return;
  }
  const float* x = Read(from, span, memory);
  if (step.result.half) {
    VecNarrow(x, const_cast<uint16_t*>(At<uint16_t>(step.result, span, memory)), span.count);
    return;
  }
  std::memmove(const_cast<float*>(Read(step.result, span, memory)), x,
               static_cast<size_t>(span.count) * sizeof(float));
}

void Chain::RunDropout(const Dropout& dropout, const RunContext& context, int64_t flat,
                       const float* x, float* out, int64_t count) const {
  const int64_t length = dropout.runs.run_length();
  while (count > 0) {
    const int64_t first = flat % length;
    const int64_t part = std::min(count, length - first);
    const int64_t start = dropout.runs.At(flat / length, context.microbatch).global_start + first;
    MaskRow(dropout.mask, context, static_cast<uint64_t>(start), x, out, part);
    flat += part;
    x += part;
    out += part;
    count -= part;
  }
}

void Chain::RunStep(const Step& step, const RunContext& context, const Span& span,
                    const Memory& memory) const {
  const auto operand = [&](size_t i) { return Read(step.operands[i], span, memory); };
  if (step.op == ir::Op::kReduceSum) {
    const int64_t sums = static_cast<int64_t>(sums_.size());
    float* sum = memory.sums +
                 (span.row / kSumRows * sums + static_cast<int64_t>(step.extra)) * width_ +
                 span.column;
    VecAdd(sum, operand(0), sum, span.count);
    return;
  }
  if (step.op == ir::Op::kCast) return RunCast(step, span, memory);
  float* out = const_cast<float*>(Read(step.result, span, memory));
  if (step.op == ir::Op::kDropout) {
    return RunDropout(dropouts_[step.extra], context, span.row * width_ + span.column, operand(0),
                      out, span.count);
  }
  if (step.op != ir::Op::kSum) return RunFormula(step, span, memory);
  if (step.operands.size() == 1) {
    std::memmove(out, operand(0), static_cast<size_t>(span.count) * sizeof(float));
    return;
  }
  VecAdd(operand(0), operand(1), out, span.count);
  for (size_t i = 2; i < step.operands.size(); ++i) VecAdd(out, operand(i), out, span.count);
}

void Chain::RunFormula(const Step& step, const Span& span, const Memory& memory) const {
  constexpr size_t kMostOperands = 2;
  const float* x[kMostOperands] = {};
  MW_CHECK(step.operands.size() <= kMostOperands && step.extra < formulas_.size())
      << ir::OpName(step.op) << " of " << step.operands.size() << " operands";
  for (size_t i = 0; i < step.operands.size(); ++i) x[i] = Read(step.operands[i], span, memory);
  formulas_[step.extra].Run(x, const_cast<float*>(Read(step.result, span, memory)), span.count,
                            memory.scratch + temporaries_ * kSpan);
}

void Chain::RunSpan(const RunContext& context, const Span& span, const Memory& memory) const {
  if (half_accumulator_) {
    VecWiden(static_cast<const uint16_t*>(memory.accumulator),
             memory.scratch + static_cast<int64_t>(accumulator_copy_) * kSpan, span.count);
  }
  for (const Step& step : steps_) RunStep(step, context, span, memory);
}

void Chain::RunRegion(const RunContext& context, int64_t row, int64_t rows, int64_t column,
                      int64_t columns, Memory memory, int64_t accumulator_stride) const {
  const auto* const accumulator = static_cast<const std::byte*>(memory.accumulator);
  const int64_t element = accumulator_bytes();
  const int64_t sums = static_cast<int64_t>(sums_.size());
  for (int64_t r = row; r < row + rows; ++r) {
    if (r % kSumRows == 0) {
      float* group = memory.sums + r / kSumRows * sums * width_;
      for (int64_t k = 0; k < sums; ++k) std::fill_n(group + k * width_ + column, columns, 0.0f);
    }
    for (int64_t c = 0; c < columns; c += kSpan) {
      if (accumulator != nullptr) {
        memory.accumulator = accumulator + ((r - row) * accumulator_stride + c) * element;
      }
      RunSpan(context, {r, column + c, std::min(kSpan, columns - c)}, memory);
    }
  }
}

void Chain::AddUp(const float* sums, Outputs outputs) const {
  const int64_t count = static_cast<int64_t>(sums_.size());
  const int64_t groups = (rows_ + kSumRows - 1) / kSumRows;
  for (int64_t k = 0; k < count; ++k) {
    const Tensor& out = outputs[sums_[static_cast<size_t>(k)]];
    const bool half = out.type->dtype == ir::DType::kBF16;
    for (int64_t j = 0; j < width_; ++j) {
      double total = 0;
      for (int64_t g = 0; g < groups; ++g) {
        total += static_cast<double>(sums[(g * count + k) * width_ + j]);
      }
      const float sum = static_cast<float>(total);
      if (half) {
        out.as<uint16_t>()[j] = FloatToBf16(sum);
      } else {
        out.as<float>()[j] = sum;
      }
    }
  }
}

}  // namespace meshwright::ops::cpu
