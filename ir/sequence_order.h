// In which order the tokens of a row lie in a tensor.
//
// A causal sequence that ranks share in plain blocks is work for the last of them above all: its
// queries see everything. In zigzag order the sequence is cut into 2 * parts chunks, and block p
// holds the chunks p and 2 * parts - 1 - p: every block has as much to do as any other, with each
// block of keys. A graph says the order in the attributes of the ops that know positions
// (planner/job_on_axes.h writes them); all others compute on tokens wherever they lie.
//
// Thread rule: values, pure functions. Source: zigzag ring attention of
// zhuzilin/ring-flash-attention, 2024.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace meshwright::ir {

struct SequenceOrder {
  int64_t parts = 1;  // of zigzag; 1: in the order of their positions

  bool plain() const { return parts == 1; }
  // From the attribute {zigzag:int}; plain when absent.
  static SequenceOrder FromAttrs(const Attrs& attrs);
  void ToAttrs(Attrs& attrs) const;
  // Whether it cuts so many tokens into equal chunks.
  bool Divides(int64_t tokens) const { return plain() || tokens % (2 * parts) == 0; }
  friend bool operator==(const SequenceOrder&, const SequenceOrder&) = default;
};

// Neighbouring tokens at neighbouring places.
struct TokenRun {
  int64_t place = 0;
  int64_t position = 0;
  int64_t count = 0;
  friend bool operator==(const TokenRun&, const TokenRun&) = default;
};

// What lies at the places [begin, begin + count) of a row of `tokens`; places count from `begin`.
// Neighbouring runs are one. REQUIRES: the order divides `tokens`, which the places are of.
std::vector<TokenRun> RunsAt(const SequenceOrder& order, int64_t tokens, int64_t begin,
                             int64_t count);

}  // namespace meshwright::ir
