// The curve between the products of an MLP, by Hugging Face's names for them.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "client/layers.h"

namespace meshwright::models {

enum class Activation : uint8_t { kSilu, kGeluTanh, kGeluErf, kRelu, kQuickGelu };

// key: of the config.json, for messages. Errors: kUnimplemented naming key and name, with the known
// ones.
Result<Activation> ParseActivation(const std::string& key, const std::string& name);
const char* ActivationName(Activation activation);

ValueId Activate(client::Builder& builder, ValueId x, Activation activation);

}  // namespace meshwright::models
