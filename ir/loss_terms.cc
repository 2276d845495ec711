#include "ir/loss_terms.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "ir/rewrite.h"
#include "ir/schema.h"

namespace meshwright::ir {
namespace {

class TermAppender {
 public:
  TermAppender(Builder& builder, const Node& node, const std::vector<ValueId>& operands,
               const std::vector<ValueId>& results)
      : b_(builder),
        logits_(operands[0]),
        labels_(operands[1]),
        loss_(results[0]),
        lse_(results[2]),
        dtype_(builder.type(results[0]).dtype),
        ignored_(node.attrs.Int("ignore_index", kDefaultIgnoreIndex)) {}

  // The loss with the terms.
  ValueId Append(const LossTerms& terms) {
    std::vector<ValueId> sums;
    if (terms.label_smoothing != 0) {
      sums.push_back(
          Scaled(b_.AddOne(Op::kSub, {SumOfCounted(SpreadLoss()), loss_}), terms.label_smoothing));
    }
    if (terms.z_loss != 0) {
      sums.push_back(Scaled(SumOfCounted(b_.AddOne(Op::kSquare, {lse_})), terms.z_loss));
    }
    const ValueId more = sums.size() == 1 ? sums[0] : b_.AddOne(Op::kAdd, {sums[0], sums[1]});
    return b_.AddOne(Op::kAdd, {loss_, more}, {{kTrainingAttr, int64_t{1}}});
  }

 private:
  ValueId Scaled(ValueId x, double factor) {
    return b_.AddOne(Op::kScale, {x}, {{"factor", factor}});
  }

  ValueId SumOver(ValueId x, std::vector<int64_t> dims) {
    return b_.AddOne(Op::kReduceSum, {x}, {{"dims", std::move(dims)}});
  }

  ValueId InDType(ValueId x) {
    if (!b_.status().ok() || b_.type(x).dtype == dtype_) return x;
    return b_.AddOne(Op::kCast, {x}, {{"dtype", std::string(DTypeName(dtype_))}});
  }

  // Per token the mean over all labels of -log p.
  ValueId SpreadLoss() {
    const Dims dims = b_.type(logits_).dims;
    const ValueId sum = SumOver(InDType(logits_), {static_cast<int64_t>(dims.size()) - 1});
    const ValueId mean = Scaled(sum, 1 / static_cast<double>(dims.back()));
    return b_.AddOne(Op::kSub, {lse_, mean});
  }

  ValueId SumOfCounted(ValueId per_token) {
    std::vector<int64_t> dims;
    for (int d = 0; d < b_.type(per_token).rank(); ++d) dims.push_back(d);
    const ValueId counted = b_.AddOne(Op::kMul, {per_token, Counted()});
    return dims.empty() ? counted : SumOver(counted, std::move(dims));
  }

  // 1 for tokens whose label counts, else 0.
  ValueId Counted() {
    if (counted_.valid()) return counted_;
    const ValueId ignored = b_.AddOne(Op::kConstant, {}, {{"value", static_cast<double>(ignored_)}},
                                      {TensorType{dtype_, {}}});
    counted_ = InDType(b_.AddOne(Op::kNotEqual, {InDType(labels_), ignored}));
    return counted_;
  }

  Builder& b_;
  const ValueId logits_;
  const ValueId labels_;
  const ValueId loss_;
  const ValueId lse_;
  const DType dtype_;
  const int64_t ignored_;
  ValueId counted_;
};

Status CheckTerms(const Graph& loss, const LossTerms& terms) {
  if (!(terms.label_smoothing >= 0 && terms.label_smoothing < 1)) {
    return InvalidArgument(
        fmt::format("label smoothing is {}; it must be in [0, 1)", terms.label_smoothing));
  }
  if (!(terms.z_loss >= 0 && terms.z_loss <= 1e6)) {
    return InvalidArgument(fmt::format("z-loss is {}; it must be in [0, 1e6]", terms.z_loss));
  }
  const size_t found = loss.NodesOf(Op::kCrossEntropy).size();
  if (found == 1) return OkStatus();
  return InvalidArgument(fmt::format(
      "label smoothing and z-loss are of a loss with one cross entropy; graph \"{}\" has {}",
      loss.name, found));
}

}  // namespace

Result<Graph> WithLossTerms(const Graph& loss, const LossTerms& terms) {
  if (!terms.any()) return loss;
  MW_TRY(CheckTerms(loss, terms));
  return RewriteGraph(loss,
                      [&](Builder& builder, const Node& node, const std::vector<ValueId>& inputs,
                          const std::vector<TensorType>& types) {
                        std::vector<ValueId> made = builder.Add(node.op, inputs, node.attrs, types);
                        if (node.op != Op::kCrossEntropy || !builder.status().ok()) return made;
                        made[0] = TermAppender(builder, node, inputs, made).Append(terms);
                        return made;
                      });
}

}  // namespace meshwright::ir
