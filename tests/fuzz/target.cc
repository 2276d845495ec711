#include "tests/fuzz/target.h"

namespace meshwright::fuzz {

const std::vector<Target>& AllTargets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> made;
    for (const auto& of : {FormatTargets, IrTargets, TokenizerTargets, ConfigTargets, WireTargets,
                           MessageTargets, RecordTargets, TextTargets}) {
      for (Target& target : of()) made.push_back(std::move(target));
    }
    return made;
  }();
  return all;
}

const Target* FindTarget(std::string_view name) {
  for (const Target& target : AllTargets()) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

}  // namespace meshwright::fuzz
