// The job of tests of actors: a program that doubles two numbers, and a client that drives.
#pragma once

#include <cstdint>
#include <utility>

#include "client/program.h"
#include "client/trainer.h"

namespace meshwright::testing {

inline Result<ir::JobRequest> DoublingJob(int64_t grace_s) {
  MW_ASSIGN_OR_RETURN(
      ir::JobProgram program,
      client::MakeProgram(
          "double", {{"x", {ir::DType::kF32, {1, 2}}}},
          [](client::Builder& b, const client::Batch& in) {
            b.SetOutput("y", b.AddOne(ir::Op::kScale, {in.at("x")}, {{"factor", 2.0}}));
            return OkStatus();
          }));
  return client::JobBuilder("driven")
      .Batch(1, 1)
      .Program(std::move(program))
      .Driver({ir::DriverKind::kClient, "", 0, grace_s})
      .SaveWeights(false)
      .Build();
}

}  // namespace meshwright::testing
