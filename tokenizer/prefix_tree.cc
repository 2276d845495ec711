#include "tokenizer/prefix_tree.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace meshwright::tokenizer {

void PrefixTree::Reserve(size_t bytes) { Grow(std::bit_ceil(2 * bytes + 16)); }

void PrefixTree::Grow(size_t slots) {
  const std::vector<Edge> before = std::move(edges_);
  edges_.assign(slots, Edge());
  for (const Edge& edge : before) {
    if (edge.byte_plus_one == 0) continue;
    edges_[SlotOf(edge.from, static_cast<unsigned char>(edge.byte_plus_one - 1))] = edge;
  }
}

size_t PrefixTree::SlotOf(uint32_t node, unsigned char byte) const {
  const size_t mask = edges_.size() - 1;
  uint64_t hash = (uint64_t{node} << 8 | byte) * 0x9e3779b97f4a7c15;
  hash ^= hash >> 32;
  size_t at = hash & mask;
  while (edges_[at].byte_plus_one != 0 &&
         (edges_[at].from != node || edges_[at].byte_plus_one != uint32_t{byte} + 1)) {
    at = (at + 1) & mask;
  }
  return at;
}

void PrefixTree::Add(std::string_view text, uint32_t value) {
  MW_CHECK(!text.empty() && value != UINT32_MAX);
  uint32_t node = kRoot;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (edges_.size() < 2 * (values_.size() + 1)) Grow(std::max<size_t>(16, 2 * edges_.size()));
    Edge& edge = edges_[SlotOf(node, byte)];
    if (edge.byte_plus_one == 0) {
      edge = {node, uint32_t{byte} + 1, static_cast<uint32_t>(values_.size())};
      values_.push_back(0);
    }
    node = edge.to;
  }
  values_[node] = value + 1;
}

}  // namespace meshwright::tokenizer
