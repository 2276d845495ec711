// The three matrix products of a head, tile by tile: logits = x w^T, and from their gradient g
// dx = g w and dw = g^T x.
//
// Logits and gradient share the memory of a block of tokens, one tile of the vocabulary after the
// other, so that a tile stays in a cache from its product to its softmax, and from its gradient to
// both products with it. Thread rule: immutable; different tiles from any threads at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/kernel.h"

namespace meshwright::ops::cpu {

inline constexpr int64_t kVocabularyTile = 512;  // columns of logits, rows of dw
inline constexpr int64_t kRowTile = 512;         // of dx
inline constexpr int64_t kWidthTile = 128;       // of dx

// Cuts `count` into parts of `size`; the last is what is left.
struct Cut {
  int64_t count = 0;
  int64_t size = 1;

  int64_t parts() const { return (count + size - 1) / size; }
  int64_t begin(int64_t part) const { return part * size; }
  int64_t length(int64_t part) const { return std::min(size, count - begin(part)); }
};

struct HeadSizes {
  int64_t tokens = 0;
  int64_t width = 0;       // d
  int64_t vocabulary = 0;  // v
  int64_t block = 0;       // tokens of a block

  Cut vocabulary_tiles() const { return {vocabulary, kVocabularyTile}; }
};

// A block of tokens: its first token and their number, and the memory of its logits.
struct HeadBlock {
  int64_t first = 0;
  int64_t rows = 0;
  float* logits = nullptr;

  // Tile `tile` of `tiles`: [rows, tiles.length(tile)].
  float* Tile(const Cut& tiles, int64_t tile) const { return logits + rows * tiles.begin(tile); }
};

// The tiles of the rows of dx that belong to a block.
class InputTiles {
 public:
  InputTiles(int64_t rows, int64_t width) : rows_{rows, kRowTile}, columns_{width, kWidthTile} {}

  struct Tile {
    int64_t row, rows, column, columns;
  };

  int64_t count() const { return rows_.parts() * columns_.parts(); }
  Tile At(int64_t index) const {
    const int64_t i = index / columns_.parts();
    const int64_t j = index % columns_.parts();
    return {rows_.begin(i), rows_.length(i), columns_.begin(j), columns_.length(j)};
  }

 private:
  Cut rows_, columns_;
};

class HeadProducts {
 public:
  virtual ~HeadProducts() = default;

  // A tile of the logits; x [tokens, d], w [v, d].
  virtual void Logits(const HeadBlock& block, int64_t tile, const Tensor& x,
                      const Tensor& w) const = 0;

  // Brings a row of a tile's gradient into the form that the products read.
  virtual void Pack(float* gradient, int64_t count) const = 0;

  // A part of dx [tokens, d], from the gradient of one tile: written for the first, added to for
  // the others.
  virtual void InputGradient(const HeadBlock& block, int64_t tile, const InputTiles::Tile& part,
                             const Tensor& w, float* dx) const = 0;

  // The rows of a tile of dw [v, d]; `accumulate`: they are added to.
  virtual void WeightGradient(const HeadBlock& block, int64_t tile, const Tensor& x, float* dw,
                              bool accumulate) const = 0;
};

}  // namespace meshwright::ops::cpu
