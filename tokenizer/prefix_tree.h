// Texts by their beginnings: which of them a text begins with.
//
// A tree over bytes whose edges are in one hash table, so that a step costs one look whatever the
// number of children.
//
// Thread rule: immutable once filled; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace meshwright::tokenizer {

class PrefixTree {
 public:
  // Makes room for texts of so many bytes together.
  void Reserve(size_t bytes);
  // A text that is there gets the new value. REQUIRES: text is not empty.
  void Add(std::string_view text, uint32_t value);

  // Calls body(bytes, value) for each text that `text` begins with, the shortest one first.
  template <typename Body>
  void ForEachPrefix(std::string_view text, Body&& body) const {
    uint32_t node = kRoot;
    for (size_t i = 0; i < text.size(); ++i) {
      node = Child(node, static_cast<unsigned char>(text[i]));
      if (node == kRoot) return;
      if (values_[node] != 0) body(i + 1, values_[node] - 1);
    }
  }

  bool empty() const { return values_.size() == 1; }

 private:
  static constexpr uint32_t kRoot = 0;  // is no node's child, so it means none as well
  struct Edge {
    uint32_t from = 0;
    uint32_t byte_plus_one = 0;
    uint32_t to = 0;
  };
  size_t SlotOf(uint32_t node, unsigned char byte) const;
  uint32_t Child(uint32_t node, unsigned char byte) const {
    return edges_.empty() ? kRoot : edges_[SlotOf(node, byte)].to;
  }
  void Grow(size_t slots);

  std::vector<Edge> edges_;
  std::vector<uint32_t> values_ = {0};  // by node: one more than the value, 0 for none
};

}  // namespace meshwright::tokenizer
