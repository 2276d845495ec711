#include "client/trainer.h"

#include <fmt/format.h>

#include <utility>

#include "ir/rewrite.h"
#include "ir/verify.h"

namespace meshwright::client {
namespace {

using ir::Op;

Status CheckShape(const std::string& name, const GraphShape& shape) {
  if (shape.batch >= 1 && shape.sequence >= 1) return OkStatus();
  return InvalidArgument(fmt::format("graph '{}': batch {} and sequence {} must be at least 1",
                                     name, shape.batch, shape.sequence));
}

meshwright::client::Batch Collate(Builder& builder, ValueId window,
                                  const TrainerFunctions& functions) {
  return functions.collate ? functions.collate(builder, window) : NextTokenBatch(builder, window);
}

ir::TensorType WindowType(const GraphShape& shape) {
  return {ir::DType::kI32, {shape.batch, shape.sequence + 1}};
}

// The batch of records that say their labels.
meshwright::client::Batch LabelledBatch(Builder& builder, const GraphShape& shape) {
  const ir::TensorType type{ir::DType::kI32, {shape.batch, shape.sequence}};
  const auto feed = [&](const char* field) {
    return builder.AddOne(Op::kFeed, {}, {{"source", fmt::format("tokens/{}", field)}}, {type});
  };
  meshwright::client::Batch batch = {{"tokens", feed("tokens")}, {"labels", feed("labels")}};
  if (shape.rows == RowKind::kPacked) {
    const ValueId segments = feed("segments");
    builder.ReadDocuments({segments, feed("positions")});
  }
  return batch;
}

meshwright::client::Batch BatchOf(Builder& builder, const GraphShape& shape,
                                  const TrainerFunctions& functions) {
  if (shape.rows != RowKind::kWindows) return LabelledBatch(builder, shape);
  const ValueId window = builder.AddOne(Op::kFeed, {}, {{"source", "tokens"}}, {WindowType(shape)});
  return Collate(builder, window, functions);
}

Result<ir::Graph> FinishVerified(Builder& builder) {
  MW_ASSIGN_OR_RETURN(ir::Graph graph, builder.Finish());
  MW_TRY(ir::VerifyGraph(graph));
  return graph;
}

}  // namespace

Batch NextTokenBatch(Builder& builder, ValueId window) {
  const Dims dims = builder.dims(window);
  const int64_t sequence = dims.size() == 2 ? dims[1] - 1 : 0;
  return {{"tokens", builder.Slice(window, 1, 0, sequence)},
          {"labels", builder.Slice(window, 1, 1, sequence)}};
}

Result<ir::Graph> BuildLossGraph(const std::string& name, const GraphShape& shape,
                                 const TrainerFunctions& functions) {
  MW_TRY(CheckShape(name, shape));
  if (!functions.loss) {
    return Fail(InvalidArgument(fmt::format("graph '{}': TrainerFunctions.loss is empty", name)));
  }
  Builder builder(name, shape.dtype);
  const Loss loss = functions.loss(builder, BatchOf(builder, shape, functions));
  builder.SetOutput("loss_sum", loss.loss_sum);
  builder.SetOutput("count", loss.count);
  if (shape.rows != RowKind::kPacked) return FinishVerified(builder);
  // A model whose positions are relative does not ask for them.
  MW_ASSIGN_OR_RETURN(const ir::Graph graph, FinishVerified(builder));
  return ir::DropDeadNodes(graph);
}

Result<ir::JobProgram> PredictProgram(const GraphShape& shape, const TrainerFunctions& functions) {
  MW_TRY(CheckShape("predict", shape));
  if (!functions.predict) {
    return Fail(InvalidArgument("program 'predict': TrainerFunctions.predict is empty"));
  }
  const auto body = [&](Builder& builder, const meshwright::client::Batch& inputs) {
    const meshwright::client::Batch batch = Collate(builder, inputs.at("window"), functions);
    builder.SetOutput("logits", functions.predict(builder, batch));
    return OkStatus();
  };
  return MakeProgram("predict", {{"window", WindowType(shape)}}, body, {shape.dtype});
}

JobBuilder& JobBuilder::Batch(int64_t rows, int64_t sequence) {
  request_.train.global_batch = rows;
  request_.train.sequence = sequence;
  return *this;
}

JobBuilder& JobBuilder::Steps(int64_t steps) {
  request_.train.steps = steps;
  return *this;
}

JobBuilder& JobBuilder::Seed(uint64_t seed) {
  request_.train.seed = seed;
  return *this;
}

JobBuilder& JobBuilder::DType(ir::DType dtype) {
  dtype_ = dtype;
  return *this;
}

JobBuilder& JobBuilder::Data(ir::DataSpec data) {
  request_.data = std::move(data);
  return *this;
}

JobBuilder& JobBuilder::InitWeights(ir::BlobRef weights) {
  request_.init_weights = {.blob = std::move(weights)};
  return *this;
}

JobBuilder& JobBuilder::Optimizer(ir::OptimizerSpec optimizer) {
  request_.optimizer = std::move(optimizer);
  return *this;
}

JobBuilder& JobBuilder::Parallel(ir::ParallelSpec parallel) {
  request_.parallel = std::move(parallel);
  return *this;
}

JobBuilder& JobBuilder::Train(ir::TrainSpec train) {
  request_.train = train;
  return *this;
}

JobBuilder& JobBuilder::Program(ir::JobProgram program) {
  request_.programs.push_back(std::move(program));
  return *this;
}

JobBuilder& JobBuilder::Driver(ir::DriverSpec driver) {
  request_.driver = std::move(driver);
  return *this;
}

JobBuilder& JobBuilder::DrivenByClient() {
  request_.driver.kind = ir::DriverKind::kClient;
  return SaveWeights(false);
}

JobBuilder& JobBuilder::SaveWeights(bool save) {
  request_.save_weights = save;
  return *this;
}

JobBuilder& JobBuilder::Checkpoint(ir::CheckpointSpec checkpoint) {
  request_.checkpoint = std::move(checkpoint);
  return *this;
}

JobBuilder& JobBuilder::FaultTolerance(ir::FaultToleranceSpec spec) {
  request_.fault_tolerance = spec;
  return *this;
}

JobBuilder& JobBuilder::Queue(ir::QueueSpec spec) {
  request_.queue = spec;
  return *this;
}

JobBuilder& JobBuilder::StartFrom(ir::StartPoint start) {
  request_.start = std::move(start);
  return *this;
}

JobBuilder& JobBuilder::ConfigText(std::string text) {
  request_.config_text = std::move(text);
  return *this;
}

Result<ir::JobRequest> JobBuilder::Build() const {
  ir::JobRequest request = request_;
  if (dtype_ == ir::DType::kBF16) request.train.compute_dtype = ir::DType::kBF16;
  MW_TRY(ir::ValidateJob(request));
  return request;
}

Result<ir::JobRequest> JobBuilder::Build(const TrainerFunctions& functions, RowKind rows) const {
  ir::JobRequest request = request_;
  ir::DType dtype = dtype_;
  if (dtype == ir::DType::kBF16) {
    dtype = ir::DType::kF32;
    request.train.compute_dtype = ir::DType::kBF16;
  }
  const GraphShape shape{request.train.global_batch, request.train.sequence, dtype, rows};
  MW_ASSIGN_OR_RETURN(ir::Graph loss, BuildLossGraph(request.name, shape, functions));
  request.SetLoss(std::move(loss));
  MW_TRY(ir::ValidateJob(request));
  return request;
}

}  // namespace meshwright::client
