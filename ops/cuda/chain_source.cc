#include "ops/cuda/chain_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "ir/elementwise.h"
#include "ops/cuda/chain_prelude.h"

namespace meshwright::ops::cuda {
namespace {

const char* TypeText(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kBF16:
      return "Bf16";
    case ir::DType::kF16:
      return "F16";
    case ir::DType::kI32:
      return "int";
    case ir::DType::kBool:
      return "Bool";
    default:
      return "float";
  }
}

bool IsNarrow(const ChainPlan& plan, const ChainPlan::Operand& operand) {
  return operand.period != 1 && operand.period != plan.elements;
}

// A narrow operand whose period is that of the rows needs no division where there are rows.
bool IsRow(const ChainPlan& plan, const ChainPlan::Operand& operand) {
  return operand.period == plan.width;
}

// The fields of Arguments in their order, each by add(declaration of its type, name).
template <typename Add>
void ForEachField(const ChainPlan& plan, const Add& add) {
  for (size_t k = 0; k < plan.operands.size(); ++k) {
    add(fmt::format("const {}*", TypeText(plan.operands[k].dtype)), fmt::format("x{}", k));
  }
  for (size_t k = 0; k < plan.results.size(); ++k) {
    add(fmt::format("{}*", TypeText(plan.results[k].dtype)), fmt::format("y{}", k));
  }
  for (size_t k = 0; k < plan.sums.size(); ++k) add("float*", fmt::format("sum{}", k));
  add("u64", "elements");
  if (plan.width != 0) {
    for (const char* name : {"width", "rows", "group_rows", "groups"}) add("u64", name);
  }
  for (size_t k = 0; k < plan.operands.size(); ++k) {
    if (IsNarrow(plan, plan.operands[k]) && !IsRow(plan, plan.operands[k])) {
      add("u64", fmt::format("period{}", k));
    }
  }
  for (const ChainPlan::Step& step : plan.steps) {
    if (step.has_constant()) add("double", fmt::format("factor{}", step.value));
  }
  if (!plan.dropouts.empty()) add("const StepState*", "state");
  for (size_t d = 0; d < plan.dropouts.size(); ++d) {
    for (const char* name : {"key", "threshold", "offset"})
      add("u64", fmt::format("{}{}", name, d));
    add("double", fmt::format("scale{}", d));
    for (size_t l = 0; l < plan.dropouts[d].index.loops().size(); ++l) {
      add("u64", fmt::format("size{}_{}", d, l));
      add("u64", fmt::format("stride{}_{}", d, l));
    }
  }
}

class SourceWriter {
 public:
  explicit SourceWriter(const ChainPlan& plan)
      : plan_(plan), real_(plan.in_f64() ? "double" : "float") {}

  std::string Write() {
    text_ = fmt::format("#define kLanes {}\n#define WIDE_INDEX {}\n#define REAL {}\n", plan_.lanes,
                        plan_.wide_index() ? 1 : 0, real_);
    text_ += kChainPrelude;
    text_ += "\nstruct Arguments {\n";
    ForEachField(plan_, [&](const std::string& type, const std::string& name) {
      text_ += fmt::format("  {} {};\n", type, name);
    });
    text_ += "};\n";
    for (size_t d = 0; d < plan_.dropouts.size(); ++d) WriteIndex(d);
    text_ += "\nextern \"C\" __global__ void chain(const Arguments a) {\n";
    if (plan_.width == 0) {
      WriteFlat();
    } else {
      WriteRows();
    }
    text_ += "}\n";
    return std::move(text_);
  }

 private:
  // The global index of local element i for a dropout.
  void WriteIndex(size_t d) {
    const size_t loops = plan_.dropouts[d].index.loops().size();
    text_ +=
        fmt::format("\n__device__ inline u64 GlobalIndex{}(const Arguments& a, Index i) {{\n", d);
    text_ += fmt::format("  u64 index = a.offset{};\n", d);
    for (size_t l = loops; l-- > 1;) {
      text_ += fmt::format("  index += i % (Index)a.size{0}_{1} * a.stride{0}_{1};\n", d, l);
      text_ += fmt::format("  i /= (Index)a.size{}_{};\n", d, l);
    }
    text_ += fmt::format("  return index + i * a.stride{}_0;\n}}\n", d);
  }

  // A scalar, which a thread reads once.
  bool IsScalar(const ChainPlan::Operand& operand) const {
    return operand.period == 1 && plan_.elements != 1;
  }
  // What a thread reads once: scalars and, with sums, the part of a row for its columns.
  bool IsFixed(const ChainPlan::Operand& operand) const {
    return IsScalar(operand) ||
           (plan_.width != 0 && IsNarrow(plan_, operand) && IsRow(plan_, operand));
  }

  void WriteFlat() {
    text_ +=
        "  const Index stride = (Index)gridDim.x * blockDim.x * kLanes;\n"
        "  const Index begin = ((Index)blockIdx.x * blockDim.x + threadIdx.x) * kLanes;\n";
    WriteFixed();
    text_ += "  for (Index i = begin; i < a.elements; i += stride) {\n";
    for (size_t k = 0; k < plan_.operands.size(); ++k) {
      if (IsFixed(plan_.operands[k])) continue;
      text_ += fmt::format("    {} x{}[kLanes];\n    {}\n", real_, k, LoadText(k, "i", ""));
    }
    WriteBody("i", "");
    text_ += "  }\n";
  }

  // The loads of some rows come before the first store: the compiler cannot move them there, as
  // results may lie in the memory of operands. A thread writes nothing that others read. Behind the
  // last row it reads that one again.
  void WriteRows() {
    text_ += fmt::format("  constexpr int kRows = {};\n", plan_.rows_at_once());
    text_ +=
        "  const Index thread = (Index)blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  const Index columns = (Index)a.width / kLanes;\n"
        "  const Index column = thread % columns * kLanes;\n"
        "  const Index group = thread / columns;\n"
        "  if (group >= a.groups) return;\n";
    for (size_t k = 0; k < plan_.sums.size(); ++k) {
      text_ += fmt::format("  {} total{}[kLanes] = {{}};\n", real_, k);
    }
    WriteFixed();
    text_ +=
        "  const Index first = group * (Index)a.group_rows;\n"
        "  const Index last = first + a.group_rows < a.rows ? first + (Index)a.group_rows "
        ": (Index)a.rows;\n"
        "  for (Index row = first; row < last; row += kRows) {\n"
        "    Index at[kRows];\n";
    std::string loads;
    for (size_t k = 0; k < plan_.operands.size(); ++k) {
      if (IsFixed(plan_.operands[k])) continue;
      text_ += fmt::format("    {} x{}[kRows][kLanes];\n", real_, k);
      loads += fmt::format("      {}\n", LoadText(k, "at[r]", "[r]"));
    }
    text_ +=
        "#pragma unroll\n"
        "    for (int r = 0; r < kRows; ++r) {\n"
        "      at[r] = (row + r < last ? row + r : last - 1) * (Index)a.width + column;\n" +
        loads +
        "    }\n"
        "#pragma unroll\n"
        "    for (int r = 0; r < kRows; ++r) {\n"
        "    if (row + r >= last) break;\n";
    WriteBody("at[r]", "[r]");
    text_ += "    }\n  }\n";
    for (size_t k = 0; k < plan_.sums.size(); ++k) {
      text_ += fmt::format("  Store(a.sum{0} + group * (Index)a.width + column, total{0});\n", k);
    }
  }

  // What is read before the loop, so that no store lies before it.
  void WriteFixed() {
    for (size_t k = 0; k < plan_.operands.size(); ++k) {
      if (IsScalar(plan_.operands[k])) {
        text_ += fmt::format("  const {0} x{1} = Widen(*a.x{1});\n", real_, k);
      } else if (IsFixed(plan_.operands[k])) {
        text_ += fmt::format("  {0} x{1}[kLanes];\n  Load(a.x{1} + column, x{1});\n", real_, k);
      }
    }
    if (!plan_.dropouts.empty()) text_ += "  const u64 step = (u64)a.state->step;\n";
    for (size_t d = 0; d < plan_.dropouts.size(); ++d) {
      text_ += fmt::format("  const u64 key{0} = a.state->seed ^ a.key{0};\n", d);
    }
  }

  // The load of operand k for the elements from `index`.
  std::string LoadText(size_t k, const char* index, const char* row) const {
    const std::string place = IsNarrow(plan_, plan_.operands[k])
                                  ? fmt::format("{} % (Index)a.period{}", index, k)
                                  : std::string(index);
    return fmt::format("Load(a.x{0} + {1}, x{0}{2});", k, place, row);
  }

  // Everything is read before: results may lie in the memory of operands.
  void WriteBody(const char* index, const char* row) {
    for (size_t d = 0; d < plan_.dropouts.size(); ++d) WriteRandom(d, index);
    for (size_t k = 0; k < plan_.results.size(); ++k) {
      text_ += fmt::format("    {} y{}[kLanes];\n", real_, k);
    }
    text_ += "#pragma unroll\n    for (int j = 0; j < kLanes; ++j) {\n";
    for (size_t k = 0; k < plan_.operands.size(); ++k) {
      const ChainPlan::Operand& operand = plan_.operands[k];
      const std::string lane = IsScalar(operand)  ? ""
                               : IsFixed(operand) ? "[j]"
                                                  : std::string(row) + "[j]";
      text_ += fmt::format("      const {} v{} = x{}{};\n", real_, operand.value, k, lane);
    }
    for (const ChainPlan::Step& step : plan_.steps) {
      text_ += fmt::format("      const {} v{} = {};\n", real_, step.value, Expression(step));
    }
    for (size_t k = 0; k < plan_.results.size(); ++k) {
      text_ += fmt::format("      y{}[j] = v{};\n", k, plan_.results[k].value);
    }
    for (size_t k = 0; k < plan_.sums.size(); ++k) {
      text_ += fmt::format("      total{}[j] += v{};\n", k, plan_.sums[k].value);
    }
    text_ += "    }\n";
    for (size_t k = 0; k < plan_.results.size(); ++k) {
      text_ += fmt::format("    Store(a.y{0} + {1}, y{0});\n", k, index);
    }
  }

  void WriteRandom(size_t d, const char* index) {
    text_ += fmt::format("    u32 bits{}[kLanes];\n", d);
    if (plan_.dropouts[d].index.Aligned(plan_.lanes)) {
      text_ += fmt::format(
          "    const u64 place{0} = GlobalIndex{0}(a, {1}) >> 2;\n"
          "#pragma unroll\n"
          "    for (int j = 0; j < kLanes; j += 4) {{\n"
          "      const Random random = Philox(key{0}, place{0} + j / 4, step);\n"
          "#pragma unroll\n"
          "      for (int w = 0; w < 4; ++w) bits{0}[j + w] = random.words[w];\n"
          "    }}\n",
          d, index);
    } else {
      text_ += fmt::format(
          "#pragma unroll\n"
          "    for (int j = 0; j < kLanes; ++j) {{\n"
          "      bits{0}[j] = RandomWord(key{0}, step, GlobalIndex{0}(a, {1} + j));\n"
          "    }}\n",
          d, index);
    }
  }

  std::string Expression(const ChainPlan::Step& step) const {
    const auto v = [&](size_t k) { return fmt::format("v{}", step.operands[k]); };
    if (step.op == ir::Op::kDropout) {
      return fmt::format("Drop({0}, bits{1}[j], a.threshold{1}, a.scale{1})", v(0), step.dropout);
    }
    if (step.op == ir::Op::kCast) {
      if (step.dtype == ir::DType::kF32 && !plan_.in_f64()) return v(0);
      return fmt::format("Round<{}>({})", TypeText(step.dtype), v(0));
    }
    if (step.op == ir::Op::kSum) {
      std::string text = v(0);
      for (size_t k = 1; k < step.operands.size(); ++k) text += " + " + v(k);
      return text;
    }
    return FormulaText(step);
  }

  // The steps of the formula one inside of the other: C++ computes equal parts once.
  std::string FormulaText(const ChainPlan::Step& step) const {
    MW_CHECK(ir::FormulaOf(step.op) != nullptr) << ir::OpName(step.op) << " has no formula";
    const ir::Formula& formula = *ir::FormulaOf(step.op);
    std::vector<std::string> values;
    for (const int operand : step.operands) values.push_back(fmt::format("v{}", operand));
    for (size_t i = 0; i < formula.steps.size(); ++i) {
      const ir::FormulaStep& own = formula.steps[i];
      std::vector<std::string> operands;
      for (int k = 0; k < own.count; ++k) {
        operands.push_back(values[static_cast<size_t>(own.operands[static_cast<size_t>(k)])]);
      }
      MW_CHECK(operands.size() == static_cast<size_t>(own.count)) << ir::OpName(own.op);
      const std::string constant = own.takes_attrs ? fmt::format("(float)a.factor{}", step.value)
                                                   : fmt::format("(float){}", own.value);
      const std::string text = NativeText(own.op, operands, constant);
      const bool is_last = i + 1 == formula.steps.size();
      values.push_back(is_last || text.back() == ')' ? text : "(" + text + ")");
    }
    return values.back();
  }

  static std::string NativeText(ir::Op op, const std::vector<std::string>& operands,
                                const std::string& constant) {
    const auto infix = [&](const char* sign, const std::string& right) {
      return fmt::format("{} {} {}", operands[0], sign, right);
    };
    switch (op) {
      case ir::Op::kAdd:
        return infix("+", operands[1]);
      case ir::Op::kSub:
        return infix("-", operands[1]);
      case ir::Op::kMul:
        return infix("*", operands[1]);
      case ir::Op::kDivide:
        return infix("/", operands[1]);
      case ir::Op::kScale:
        return infix("*", constant);
      case ir::Op::kShift:
        return infix("+", constant);
      default:  // a function of the prelude: gelu_grad is GeluGrad
        return fmt::format("{}({})", FunctionName(op), fmt::join(operands, ", "));
    }
  }

  static std::string FunctionName(ir::Op op) {
    std::string name;
    bool capital = true;
    for (const char c : ir::OpName(op)) {
      if (c == '_') {
        capital = true;
      } else {
        name += capital ? static_cast<char>(c - 'a' + 'A') : c;
        capital = false;
      }
    }
    return name;
  }

  const ChainPlan& plan_;
  const char* const real_;  // what is computed with
  std::string text_;
};

uint64_t Word(const void* address) { return reinterpret_cast<uint64_t>(address); }
uint64_t Word(int64_t value) { return static_cast<uint64_t>(value); }
uint64_t Word(double value) { return std::bit_cast<uint64_t>(value); }

}  // namespace

std::string ChainSource(const ChainPlan& plan) { return SourceWriter(plan).Write(); }

// In the order of ForEachField.
void ChainArguments(const ChainPlan& plan, const ChainMemory& memory, int32_t microbatch,
                    std::vector<uint64_t>& words) {
  words.clear();
  for (const ChainPlan::Operand& operand : plan.operands) {
    words.push_back(Word(operand.input == ChainPlan::kAccumulator
                             ? memory.accumulator
                             : memory.inputs[static_cast<size_t>(operand.input)].data));
  }
  for (const ChainPlan::Result& result : plan.results) {
    words.push_back(Word(memory.outputs[static_cast<size_t>(result.output)].data));
  }
  for (size_t k = 0; k < plan.sums.size(); ++k) {
    words.push_back(Word(memory.sums + static_cast<int64_t>(k) * plan.groups() * plan.width));
  }
  words.push_back(Word(plan.elements));
  if (plan.width != 0) {
    for (const int64_t size : {plan.width, plan.rows(), plan.group_rows(), plan.groups()}) {
      words.push_back(Word(size));
    }
  }
  for (const ChainPlan::Operand& operand : plan.operands) {
    if (IsNarrow(plan, operand) && !IsRow(plan, operand)) words.push_back(Word(operand.period));
  }
  for (const ChainPlan::Step& step : plan.steps) {
    if (step.has_constant()) words.push_back(Word(static_cast<double>(step.constant())));
  }
  if (!plan.dropouts.empty()) words.push_back(Word(static_cast<const void*>(memory.state)));
  for (const ChainPlan::Dropout& dropout : plan.dropouts) {
    words.push_back(dropout.mask.Key(0));
    words.push_back(dropout.mask.threshold());
    words.push_back(Word(dropout.index.offset(microbatch)));
    words.push_back(Word(dropout.mask.keep_scale()));
    for (const GlobalIndex::Loop& loop : dropout.index.loops()) {
      words.push_back(Word(loop.size));
      words.push_back(Word(loop.stride));
    }
  }
}

int64_t ChainThreads(const ChainPlan& plan) {
  MW_CHECK(plan.lanes >= 1 && plan.elements % plan.lanes == 0)
      << plan.elements << " elements in lanes of " << plan.lanes;
  if (plan.width == 0) return plan.elements / plan.lanes;
  return plan.groups() * (plan.width / plan.lanes);
}

}  // namespace meshwright::ops::cuda
