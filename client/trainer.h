// Three functions make a training job: collate, loss, predict. They are written once, for one
// logical batch on one logical device; the planner decides how they run on many.
//
// clang-format off
//   collate  window i32[b, s+1] of the data set -> named values;
//            by default tokens = window[:, :s], labels = window[:, 1:]
//            (in place of it inputs: the fields of records)
//   loss     the batch -> loss_sum, count (client/layers.h)
//   predict  the batch -> logits [b, s, v]
//
//   TrainerFunctions functions;
//   functions.loss = [](Builder& b, const Batch& batch) {
//     ValueId x = b.Embedding(batch.at("tokens"), "embed", 256, 64);
//     ValueId logits = b.Linear(b.Gelu(b.Linear(x, "up", 256)), "head", 256);
//     return b.CrossEntropy(logits, batch.at("labels"));
//   };
//   JobBuilder builder("mlp");
//   builder.Batch(32, 128).Steps(200).Data(data);
//   MW_ASSIGN_OR_RETURN(ir::JobRequest job, builder.Build(functions));
//   MW_ASSIGN_OR_RETURN(int64_t id, client->Submit(job));
// clang-format on
//
// Give model code its layer numbers with Builder::SetLayer(0..n-1): pipeline stages are cut between
// layers. Thread rule: the functions are called once per graph, on the calling thread. Source: the
// trainer interface of Redco.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/layers.h"
#include "client/program.h"
#include "ir/graph.h"
#include "ir/job.h"

namespace meshwright::client {

// What a row of the data is.
enum class RowKind : uint8_t {
  kWindows,  // sequence + 1 tokens in a row, of the stream "tokens"
  // Records of the stream "tokens", with fields i32[sequence]: "tokens", and "labels", of which
  // those that are -100 do not count.
  kLabelled,
  kPacked,  // and "segments" and "positions": several documents in a row (PackedDocuments)
  kWords,   // and "words": the place in its row at which the word of each token begins
};
inline bool IsPacked(RowKind rows) { return rows == RowKind::kPacked || rows == RowKind::kWords; }

struct GraphShape {
  int64_t batch = 1;     // rows of the global batch
  int64_t sequence = 1;  // tokens per row
  ir::DType dtype = ir::DType::kF32;
  RowKind rows = RowKind::kWindows;
};

struct TrainerFunctions {
  std::function<Batch(Builder&, ValueId window)> collate;  // empty: NextTokenBatch
  std::function<Loss(Builder&, const Batch&)> loss;
  std::function<ValueId(Builder&, const Batch&)> predict;  // only PredictProgram needs it
  // The fields of records, which are the batch, in place of a window that collate takes apart.
  std::function<std::vector<InputSpec>(const GraphShape&)> inputs = {};
  // What training makes of a batch before its loss is taken; predict has the batch as it is. A
  // model with it sees all tokens of a row, so predict takes "tokens" [b, s] and no label. Where
  // the batch has "words", words are hidden as a whole.
  std::function<Batch(Builder&, const Batch&)> corrupt = {};
  // "tokens" [b, s] -> what the model makes of each, [b, s, d]; only EmbedProgram needs it. Empty:
  // a token is not seen by all others.
  std::function<ValueId(Builder&, const Batch&)> encode = {};
};

// "tokens" i32[b, s] and "labels" i32[b, s] from a window i32[b, s+1].
Batch NextTokenBatch(Builder& builder, ValueId window);

// The loss of one global batch, outputs "loss_sum" and "count", verified. Errors: what the
// functions did wrong.
Result<ir::Graph> BuildLossGraph(const std::string& name, const GraphShape& shape,
                                 const TrainerFunctions& functions);

// The program "predict": "logits" of an input "window" i32[b, s+1] that a client brings, or of what
// `functions` says in its place.
// Errors: as BuildLossGraph.
Result<ir::JobProgram> PredictProgram(const GraphShape& shape, const TrainerFunctions& functions);

// Collects a JobRequest; Build() makes what is missing of it and checks everything that needs no
// cluster (ir::ValidateJob).
class JobBuilder {
 public:
  // Degrees, schedule and ZeRO are left to the search (ir::OpenParallel), as in a job file.
  explicit JobBuilder(std::string name) {
    request_.name = std::move(name);
    request_.parallel = ir::OpenParallel();
  }

  JobBuilder& Batch(int64_t rows, int64_t sequence);
  JobBuilder& Steps(int64_t steps);
  JobBuilder& Seed(uint64_t seed);
  // kF32, kF64, or kBF16 and kF16: mixed precision with f32 params (ir/mixed_precision.h).
  JobBuilder& DType(ir::DType dtype);
  JobBuilder& Data(ir::DataSpec data);
  JobBuilder& InitWeights(ir::BlobRef weights);
  JobBuilder& Optimizer(ir::OptimizerSpec optimizer);
  JobBuilder& Parallel(ir::ParallelSpec parallel);
  JobBuilder& Train(ir::TrainSpec train);  // replaces batch, steps and seed too
  // One more program (client/program.h).
  JobBuilder& Program(ir::JobProgram program);
  JobBuilder& Driver(ir::DriverSpec driver);
  // A session's calls decide what runs (client/session.h); no weights are written at its end.
  JobBuilder& DrivenByClient();
  JobBuilder& SaveWeights(bool save);
  // When the state is saved, and where below the workers' checkpoint roots.
  JobBuilder& Checkpoint(ir::CheckpointSpec checkpoint);
  // What becomes of it when it loses devices.
  JobBuilder& FaultTolerance(ir::FaultToleranceSpec spec);
  // How it waits for its devices, and for whom it gives them away.
  JobBuilder& Queue(ir::QueueSpec spec);
  // A checkpoint to go on from.
  JobBuilder& StartFrom(ir::StartPoint start);
  JobBuilder& ConfigText(std::string text);

  // The loss of a language model on the data's tokens, and the programs. rows: of kinds other than
  // windows TrainerFunctions::collate is not asked.
  Result<ir::JobRequest> Build(const TrainerFunctions& functions,
                               RowKind rows = RowKind::kWindows) const;
  // The programs alone.
  Result<ir::JobRequest> Build() const;

 private:
  ir::JobRequest request_;
  ir::DType dtype_ = ir::DType::kF32;
};

}  // namespace meshwright::client
