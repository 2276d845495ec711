#include "client/trainer.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/check.h"
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
  if (shape.rows == RowKind::kWords) batch["words"] = feed("words");
  if (IsPacked(shape.rows)) {
    const ValueId segments = feed("segments");
    builder.ReadDocuments({segments, feed("positions")});
  }
  return batch;
}

// The batch of the job's stream "tokens".
meshwright::client::Batch FedBatch(Builder& builder, const GraphShape& shape,
                                   const TrainerFunctions& functions) {
  const auto feed = [&](const std::string& source, const ir::TensorType& type) {
    return builder.AddOne(Op::kFeed, {}, {{"source", source}}, {type});
  };
  if (!functions.inputs) {
    if (shape.rows != RowKind::kWindows) return LabelledBatch(builder, shape);
    return Collate(builder, feed("tokens", WindowType(shape)), functions);
  }
  meshwright::client::Batch batch;
  for (const InputSpec& input : functions.inputs(shape)) {
    batch[input.name] = feed("tokens/" + input.name, input.type);
  }
  return batch;
}

// The stream "tokens" that has the fields of records, as long as its files are not known.
ir::DataStream StreamWithoutFiles(const GraphShape& shape, const TrainerFunctions& functions,
                                  double validation_fraction) {
  ir::DataStream stream;
  stream.kind = ir::DataKind::kRecords;
  stream.validation_fraction = validation_fraction;
  for (const InputSpec& input : functions.inputs(shape)) {
    const ir::Dims& dims = input.type.dims;
    MW_CHECK(!dims.empty() && dims[0] == shape.batch) << input.name << " has no rows";
    stream.fields.push_back(
        {input.name, ir::Element::kI32, ir::Dims(dims.begin() + 1, dims.end()), {}, {}});
  }
  return stream;
}

// An input of "predict": "tokens" are the data's stream.
constexpr const char* kAskedRow = "row";

// What a client brings to "predict".
std::vector<InputSpec> AskedInputs(const GraphShape& shape, const TrainerFunctions& functions) {
  if (functions.inputs) return functions.inputs(shape);
  if (functions.corrupt) {
    return {{kAskedRow, {ir::DType::kI32, {shape.batch, shape.sequence}}}};
  }
  return {{"window", WindowType(shape)}};
}

// Those that some node of the graph reads; their feeds are its first ones, in this order.
std::vector<InputSpec> ReadInputs(const ir::Graph& graph, const std::vector<InputSpec>& inputs) {
  const std::vector<NodeId> feeds = graph.NodesOf(ir::Op::kFeed);
  MW_CHECK(feeds.size() == inputs.size()) << feeds.size() << " feeds of " << inputs.size();
  std::set<ValueId> values;
  for (const ir::Node& node : graph.nodes) values.insert(node.inputs.begin(), node.inputs.end());
  std::vector<InputSpec> read;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (values.contains(graph.node(feeds[i]).outputs[0])) read.push_back(inputs[i]);
  }
  return read;
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
  meshwright::client::Batch batch = FedBatch(builder, shape, functions);
  if (functions.corrupt) batch = functions.corrupt(builder, batch);
  const Loss loss = functions.loss(builder, batch);
  builder.SetOutput("loss_sum", loss.loss_sum);
  builder.SetOutput("count", loss.count);
  if (!IsPacked(shape.rows)) return FinishVerified(builder);
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
    meshwright::client::Batch batch = inputs;
    if (!functions.inputs) {
      batch = functions.corrupt ? meshwright::client::Batch{{"tokens", inputs.at(kAskedRow)}}
                                : Collate(builder, inputs.at("window"), functions);
    }
    builder.SetOutput("logits", functions.predict(builder, batch));
    return OkStatus();
  };
  const std::vector<InputSpec> inputs = AskedInputs(shape, functions);
  MW_ASSIGN_OR_RETURN(ir::JobProgram program, MakeProgram("predict", inputs, body, {shape.dtype}));
  // Nobody brings the label of what is to be labelled.
  const std::vector<InputSpec> read = ReadInputs(program.graph, inputs);
  if (read.size() == inputs.size()) return program;
  return MakeProgram("predict", read, body, {shape.dtype});
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
  if (ir::DTypeBytes(dtype_) == 2) request.train.compute_dtype = dtype_;
  MW_TRY(ir::ValidateJob(request));
  return request;
}

Result<ir::JobRequest> JobBuilder::Build(const TrainerFunctions& functions, RowKind rows) const {
  ir::JobRequest request = request_;
  ir::DType dtype = dtype_;
  if (ir::DTypeBytes(dtype) == 2) {
    request.train.compute_dtype = dtype;
    dtype = ir::DType::kF32;
  }
  const GraphShape shape{request.train.global_batch, request.train.sequence, dtype, rows};
  MW_ASSIGN_OR_RETURN(ir::Graph loss, BuildLossGraph(request.name, shape, functions));
  request.SetLoss(std::move(loss));
  if (functions.inputs && request.data.streams.empty()) {
    request.data.streams = {StreamWithoutFiles(shape, functions, request.data.validation_fraction)};
  }
  MW_TRY(ir::ValidateJob(request));
  return request;
}

}  // namespace meshwright::client
