// What an encoder says of a source, in pages: a model with an encoder and a decoder writes texts,
// each of which has a source of its own.
//
// Idea: beside the pages of the texts, attention between a text and its source has pages too, of
// which each row of the table has its own ones, for the longest source. A program that *reads* a
// source runs the encoder on it and writes the keys and values of all decoder layers there; every
// program lets the tokens of a text see its source up to the end. A model tells the two apart by
// its batch, which beside "tokens" (docs/generation.md) has
//   source_table  i32[g, texts, m]  the pages of each row's source
//   source_end    i32[g, n]  of each token: the last position of its text's source
// and of a program that reads a source
//   source        i32[g, s]  its tokens
//   source_row    i32[g, s]  the row of the table that it is for; -1: padding
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "client/layers.h"
#include "client/program.h"

namespace meshwright::client {

inline constexpr char kSourceTokens[] = "source";
inline constexpr char kSourceRow[] = "source_row";
inline constexpr char kSourceEnd[] = "source_end";
inline constexpr char kSourceTable[] = "source_table";

// Of a job whose programs have sources.
struct SourceShape {
  int64_t positions = 0;  // of the longest source; 0: there are no sources
  bool reads = false;     // whether the program reads one
};

// What a client brings to a program of `tokens` tokens: nothing without sources.
std::vector<InputSpec> SourceInputs(const PageShape& shape, const SourceShape& source,
                                    int64_t tokens);
// `in`, which has those inputs, as a model's batch. REQUIRES pages.
Batch WithSourceTable(Builder& builder, Batch in, const SourceShape& source);

// Whether a program over pages reads a source.
bool ReadsSource(const Batch& batch);
// Which of the source's places are no padding: bool [g, s]. REQUIRES ReadsSource.
ValueId SourceSeen(Builder& builder, const Batch& batch);

// What the keys and values of attention to sources are.
struct SourceKeys {
  int64_t heads = 1;
  int64_t size = 1;  // of a head
  ValueId k = {};    // [g, s, heads, size]; invalid: no source is read
  ValueId v = {};    // likewise
  double scale = 0;  // of the scores; 0: 1 / sqrt(size)
};

// q [g, n, h, size] -> [g, n, h, size]: each token sees all of its text's source. The pages are a
// param of the job that programs keep. REQUIRES pages.
ValueId SourceAttention(Builder& builder, ValueId q, const SourceKeys& keys, const Batch& batch);

}  // namespace meshwright::client
