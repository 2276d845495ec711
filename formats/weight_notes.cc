#include "formats/weight_notes.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace meshwright::formats {
namespace {

// Masks and tables that files of older versions have, and heads that are the embedding again.
constexpr std::string_view kComputed[] = {
    "attn.bias",      "attention.bias", "masked_bias",  "inv_freq",           "position_ids",
    "lm_head.weight", "decoder.weight", "decoder.bias", "embed_tokens.weight"};

}  // namespace

std::vector<std::string> TensorsLeft(const SafetensorsFile& file,
                                     const std::set<std::string>& read) {
  std::vector<std::string> left;
  for (const SafetensorsEntry& entry : file.entries()) {
    const bool computed =
        std::any_of(std::begin(kComputed), std::end(kComputed),
                    [&](std::string_view name) { return entry.name.ends_with(name); });
    if (!computed && !read.contains(entry.name)) left.push_back(entry.name);
  }
  return left;
}

}  // namespace meshwright::formats
