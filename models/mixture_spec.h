// Mixtures of experts by name: the families with their named sizes, and what a user says of them.
// Internal to models/registry.cc.
//
// Thread rule: pure functions and constant data.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/result.h"
#include "models/mixture.h"
#include "models/registry.h"

namespace meshwright::models {

using MixtureFlavors = std::map<std::string, MixtureConfig>;

const std::map<std::string, MixtureFlavors>& MixtureFamilies();
// Null: not one of them.
const MixtureFlavors* FindMixtureFamily(const std::string& name);

// What is said counts.
template <typename T>
void Override(T& field, const std::optional<T>& value) {
  if (value) field = *value;
}

// Errors: kInvalidArgument naming a key that the router does not have, or an unknown name.
Status OverrideMixture(const MixtureSpec& spec, MixtureConfig& config);

// Errors: kInvalidArgument naming what `model` does not have.
Status RefuseField(const std::string& model, const char* field, bool set);
Status RefuseExperts(const std::string& model, const MixtureSpec& spec);

}  // namespace meshwright::models
