// Keys that people bring along from TorchTitan, Hugging Face's Trainer or Megatron, and what says
// the same here, or that nothing does.
//
// Thread rule: constant data.
#pragma once

#include <string>
#include <string_view>

namespace meshwright::config {

// What to say of an unknown key: "; write training.global_batch_size ...", or "" where nothing is
// known of it. Spellings count in any case. An empty `name` asks for the section itself.
std::string ForeignKeyHint(std::string_view section, std::string_view name);

// The same of a value of a key that is known: "; write \"async\" ...".
std::string ForeignValueHint(std::string_view section, std::string_view name,
                             std::string_view value);

}  // namespace meshwright::config
