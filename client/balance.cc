#include "client/balance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace meshwright::client {
namespace {

constexpr std::pair<const char*, BalanceForm> kForms[] = {{"sequence", BalanceForm::kSequence},
                                                          {"gshard", BalanceForm::kGshard},
                                                          {"switch", BalanceForm::kSwitch},
                                                          {"mixtral", BalanceForm::kMixtral}};

}  // namespace

std::vector<std::string> BalanceFormNames() {
  std::vector<std::string> names;
  for (const auto& [name, form] : kForms) names.emplace_back(name);
  return names;
}

Result<BalanceForm> ParseBalanceForm(const std::string& name) {
  for (const auto& [known, form] : kForms) {
    if (name == known) return form;
  }
  return Fail(InvalidArgument(fmt::format("balance_form '{}' is unknown; one of {}", name,
                                          fmt::join(BalanceFormNames(), ", "))));
}

ValueId BalanceLoss::Inner(ValueId counts, ValueId shares) const {
  return b_.ReduceSum(b_.MulBy(counts, shares), {-1});
}

void BalanceLoss::AddTo(ValueId& sum, ValueId value) const {
  sum = sum.valid() ? b_.AddTo(sum, value) : value;
}

void BalanceLoss::Add(const MixtureOfExperts& mixture) {
  const Dims dims = b_.dims(mixture.shares);
  if (dims.size() != 3) return;  // after an error
  ++layers_;
  const auto tokens = static_cast<double>(dims[1]);
  const auto all_tokens = static_cast<double>(dims[0]) * tokens;
  const auto experts = static_cast<double>(dims[2]);
  const auto k = static_cast<double>(mixture.options.chosen);
  switch (form_) {
    case BalanceForm::kSequence: {
      const ValueId got = b_.Scale(mixture.choices, experts / (k * tokens));
      AddTo(value_, Inner(got, b_.ReduceMean(mixture.shares, {1})));
      return;
    }
    case BalanceForm::kGshard: {
      const ValueId first = b_.OneHot(b_.Slice(mixture.ids, 2, 0, 1), dims[2]);
      const ValueId got = b_.Scale(b_.ReduceSum(first, {1, 2}), 1 / (experts * tokens));
      AddTo(value_, Inner(got, b_.ReduceMean(mixture.shares, {1})));
      return;
    }
    case BalanceForm::kSwitch: {
      const ValueId got = b_.Scale(b_.ReduceSum(mixture.choices, {0}), experts / (k * all_tokens));
      AddTo(value_, Inner(OfWholeBatch(got), b_.ReduceMean(mixture.shares, {0, 1})));
      return;
    }
    case BalanceForm::kMixtral:
      AddTo(counts_, b_.Scale(b_.ReduceSum(mixture.choices, {0}), experts / all_tokens));
      AddTo(shares_, b_.ReduceMean(mixture.shares, {0, 1}));
      return;
  }
}

ValueId BalanceLoss::Sum(ValueId counted) const {
  if (layers_ == 0) return ValueId();
  if (form_ == BalanceForm::kSequence || form_ == BalanceForm::kGshard) {
    return b_.ReduceSum(b_.MulBy(value_, counted), {0});
  }
  const ValueId all_counted = OfWholeBatch(b_.ReduceSum(counted, {0}));
  if (form_ == BalanceForm::kSwitch) return b_.MulBy(value_, all_counted);
  const double share = 1.0 / static_cast<double>(layers_ * layers_);
  return b_.MulBy(b_.Scale(Inner(OfWholeBatch(counts_), shares_), share), all_counted);
}

// Of counts, through which no gradient passes: what is left is linear in the probabilities, so that
// microbatches add up.
ValueId BalanceLoss::OfWholeBatch(ValueId sum) const {
  const std::string setting = fmt::format("balance_form = \"sequence\" in the place of \"{}\"",
                                          form_ == BalanceForm::kMixtral ? "mixtral" : "switch");
  return b_.AddOne(ir::Op::kScale, {sum}, {{"factor", 1.0}, {"whole_batch", setting}});
}

}  // namespace meshwright::client
