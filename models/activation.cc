#include "models/activation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace meshwright::models {
namespace {

struct ActivationRow {
  const char* name;
  Activation activation;
};
// The first name of each is the one that is written.
constexpr ActivationRow kActivations[] = {
    {"silu", Activation::kSilu},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu", Activation::kGeluErf},
    {"relu", Activation::kRelu},
    {"quick_gelu", Activation::kQuickGelu},
    {"swish", Activation::kSilu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_python", Activation::kGeluErf},
};

}  // namespace

Result<Activation> ParseActivation(const std::string& key, const std::string& name) {
  std::vector<std::string> known;
  for (const ActivationRow& row : kActivations) {
    if (name == row.name) return row.activation;
    known.emplace_back(row.name);
  }
  return Fail(Unimplemented(fmt::format("config.json: {} '{}' is not supported; known: {}", key,
                                        name, fmt::join(known, ", "))));
}

const char* ActivationName(Activation activation) {
  for (const ActivationRow& row : kActivations) {
    if (row.activation == activation) return row.name;
  }
  return "silu";
}

ValueId Activate(client::Builder& builder, ValueId x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return builder.Silu(x);
    case Activation::kGeluTanh:
      return builder.Gelu(x);
    case Activation::kGeluErf:
      return builder.GeluErf(x);
    case Activation::kRelu:
      return builder.Relu(x);
    case Activation::kQuickGelu:
      return builder.MulBy(x, builder.Sigmoid(builder.Scale(x, 1.702)));
  }
  return x;
}

}  // namespace meshwright::models
