// Keys that people bring along from TorchTitan, Hugging Face's Trainer, Megatron-LM or DeepSpeed,
// and what says the same here, or that nothing does. One table: the hints of errors and the tables
// of docs/coming-from.md are made from it.
//
// Thread rule: constant data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace meshwright::config {

// Where a key is from.
enum class Origin : uint8_t { kTorchTitan, kTrainer, kMegatron, kDeepSpeed };
inline constexpr Origin kOrigins[] = {Origin::kTrainer, Origin::kTorchTitan, Origin::kMegatron,
                                      Origin::kDeepSpeed};
// As docs/coming-from.md marks the place of its table: "torchtitan", "trainer", ...
std::string_view OriginName(Origin origin);

struct ForeignKey {
  Origin from;
  std::string_view section;  // "*": in any
  std::string_view name;     // "": the section itself
  std::string_view hint;     // "write optimizer.lr", "leave it out: ..."
};
std::span<const ForeignKey> ForeignKeys();

// What to say of an unknown key: "; write training.global_batch_size ...", or "" where nothing is
// known of it, or the key is one of ours. Spellings count in any case, with '-' or '_'. An empty
// `name` asks for the section itself.
std::string ForeignKeyHint(std::string_view section, std::string_view name);

// The same of a value of a key that is known: "; write \"async\" ...".
std::string ForeignValueHint(std::string_view section, std::string_view name,
                             std::string_view value);

// The keys of `origin` and what they are here, as a table of Markdown.
std::string ForeignKeyTable(Origin origin);

}  // namespace meshwright::config
