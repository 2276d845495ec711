// Rows: what a worker asks a host actor that is a source of data, and what it answers.
//
//   class Noise final : public actor::Actor<actor::RowsAsked> {
//     Status Receive(actor::RowsAsked asked, actor::ReplySlot<actor::Rows> reply) override {
//       std::string x;                                     // a field of f32[4]
//       for (int64_t i = 0; i < asked.count; ++i) x += RowOf(asked.seed, asked.step,
//       asked.first_row + i); reply.Complete(actor::Rows{{std::move(x)}}); return OkStatus();
//     }
//   };
//   registry.Add<actor::RowsAsked>("noise", MakeNoise, actor::RowsCodec());
//
// Every worker of a job has an actor of its own, workers ask for rows ahead, and a job that starts
// again asks anew: so rows must be a function of what is asked, and of the actor's arguments.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actor/codec.h"

namespace meshwright::actor {

// One entry for each field of the stream, in its order: `count` items, one behind the other, in
// row-major order, little-endian. A token stream has one field, with sequence + 1 tokens a row.
struct Rows {
  std::vector<std::string> fields;
  friend bool operator==(const Rows&, const Rows&) = default;
};

// Rows first_row to first_row + count - 1 of the global batch of a step.
struct RowsAsked {
  using Reply = Rows;
  uint64_t seed = 0;  // the job's
  int64_t step = 0;   // from 0; of validation: the batch
  int64_t first_row = 0;
  int64_t count = 0;
  bool validation = false;
  friend bool operator==(const RowsAsked&, const RowsAsked&) = default;
};

MessageCodec<RowsAsked> RowsCodec();

}  // namespace meshwright::actor
