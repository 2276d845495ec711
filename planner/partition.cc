#include "planner/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/rewrite.h"
#include "mesh/reshard.h"
#include "planner/local_node.h"
#include "planner/reduce_in_place.h"
#include "planner/renewals.h"
#include "planner/value_versions.h"
#include "planner/vocabulary_blocks.h"
#include "planner/vocabulary_schedule.h"

namespace meshwright::planner {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;
using ir::Phase;
using mesh::Sharding;

// Below this a boundary tensor is sent whole to every device: a local all-gather costs more than
// the bytes saved.
constexpr int64_t kScatterMinBytes = 1024;

struct PieceBuilder {
  explicit PieceBuilder(const PieceKey& key) : builder(PieceName(key)) {
    // What runs once per step says so: zeroing accumulators is part of the update.
    builder.SetPhase(key.round == kOncePerStep ? Phase::kUpdate : key.phase);
  }
  ir::Builder builder;
  std::map<std::pair<ValueId, Sharding>, ValueId> locals;
  std::vector<TensorIndex> inputs;
  std::vector<std::pair<TensorIndex, ValueId>> outputs;
};

class Partitioner {
 public:
  Partitioner(const Graph& graph, const StageAssignment& stages, const Strategies& strategies,
              const Layout& layout)
      : graph_(graph),
        stages_(stages),
        strategies_(strategies),
        layout_(layout),
        users_(graph.Users()),
        constant_(FindConstants(graph)),
        versions_(result_.tensors, layout.microbatches),
        renewed_(RenewedParams(graph)) {
    for (int stage = 0; stage < layout.pipeline; ++stage) {
      meshes_.push_back(PlanningMesh(layout, stage));
      if (differ()) stage_strategies_.push_back(OnMesh(strategies, meshes_.back()));
    }
  }

  Result<Partition> Run(int64_t bucket_bytes) {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].op == Op::kParam || constant_[i]) continue;
      for (const PieceKey& key : PlacesOf(i)) {
        const Status status = Emit(i, key);
        if (!status.ok())
          return Fail(
              status.WithContext(fmt::format("node {} {}", i, ir::OpName(graph_.nodes[i].op))));
      }
    }
    MW_TRY(CollectReports());
    AddZeroPieces();
    return Finish(bucket_bytes);
  }

 private:
  // ---- values, versions, tensors ----

  std::vector<Version>& Versions(int stage, ValueId value) { return versions_.Of(stage, value); }

  // Whether stages have meshes of different sizes.
  bool differ() const { return !layout_.stage_degrees.empty(); }

  const mesh::Mesh& MeshOf(int stage) const { return meshes_[static_cast<size_t>(stage)]; }

  const Strategies& StrategiesOf(int stage) const {
    return differ() ? stage_strategies_[static_cast<size_t>(stage)] : strategies_;
  }

  ir::TensorType LocalType(int stage, ValueId value, const Sharding& sharding) const {
    const ir::TensorType& global = graph_.type(value);
    MW_CHECK(sharding.dims.size() == global.dims.size())
        << "%" << value << " " << global.ToString();
    return {global.dtype, mesh::LocalDims(global.dims, sharding, MeshOf(stage))};
  }

  PieceBuilder& BuilderOf(const PieceKey& key) {
    return pieces_.try_emplace(key, key).first->second;
  }

  bool IsParam(ValueId value) const { return graph_.producer(value).op == Op::kParam; }

  size_t ProducerIndex(ValueId value) const { return graph_.value(value).producer.index(); }

  bool IsConstant(ValueId value) const { return constant_[ProducerIndex(value)]; }

  TensorIndex AddTensor(int stage, ValueId value, const Sharding& sharding, TensorRole role,
                        ir::MemoryKind kind, std::string name = "") {
    if (name.empty()) name = UniqueName(value);
    return result_.tensors.Add({stage, role, kind, std::move(name), graph_.type(value), sharding,
                                LocalType(stage, value, sharding)});
  }

  // "%12", then "%12.1", "%12.2" for its other shardings.
  std::string UniqueName(ValueId value) {
    const int count = name_counts_[value]++;
    return count == 0 ? fmt::format("%{}", value.value())
                      : fmt::format("%{}.{}", value.value(), count);
  }

  Version& ParamVersion(int stage, ValueId value) {
    std::vector<Version>& versions = Versions(stage, value);
    if (!versions.empty()) return versions.front();
    const Node& param = graph_.producer(value);
    const std::string name = param.attrs.Str("name");
    const Sharding& sharding = StrategiesOf(stage).params.at(name);
    Version version;
    version.sharding = sharding;
    version.tensor =
        AddTensor(stage, value, sharding, TensorRole::kParam, MemoryKindOf(param), name);
    StageTensor& tensor = result_.tensors[version.tensor];
    tensor.block = BlockOfParam(param, graph_.type(value));
    if (tensor.block) tensor.name = tensor.block->name;
    versions.push_back(version);
    return versions.front();
  }

  // ---- moving values into a piece ----

  // The local id of (value, required) in `key`, converting or importing as needed.
  Result<ValueId> Get(const PieceKey& key, ValueId value, const Sharding& required) {
    PieceBuilder& piece = BuilderOf(key);
    if (const auto it = piece.locals.find({value, required}); it != piece.locals.end())
      return it->second;
    if (IsConstant(value)) return ComputeConstant(key, value, required);
    if (IsParam(value)) ParamVersion(key.stage, value);
    const std::vector<Version>& versions = Versions(key.stage, value);
    if (NeedsImport(key, value, required)) MW_TRY(ImportValue(key, value, required));
    const size_t best = versions_.Best(versions, key, required);
    const Sharding have = ValueVersions::SeenBy(versions[best], key);
    // No transfer gets the rows of one microbatch out of a whole; computing only them does.
    const bool wants_rows = ValueVersions::HasRows(required) && !ValueVersions::HasRows(have);
    if (wants_rows && !IsParam(value)) {
      if (const auto strategy = BlockStrategy(graph_, value, required, MeshOf(key.stage))) {
        return ComputeBlock(key, value, *strategy);
      }
    }
    // The update reshards in the first round that can: gradients of all rounds then share buckets.
    const PieceKey home{key.stage, Phase::kUpdate, ReadyRound(versions[best])};
    if (have != required && key.phase == Phase::kUpdate && home < key && !IsParam(value)) {
      MW_TRY(Get(home, value, required));
      return Get(key, value, required);
    }
    const std::optional<Sharding> form = FormFor(StrategiesOf(key.stage), value, key.phase, have);
    if (have != required && form && *form != have && *form != required) {
      MW_ASSIGN_OR_RETURN(const ValueId local, Get(key, value, *form));
      return Convert(key, value, local, *form, required);
    }
    MW_ASSIGN_OR_RETURN(const ValueId local, BringIn(key, value, best));
    if (have == required) return local;
    return Convert(key, value, local, have, required);
  }

  // A stage that does not compute the value has no version for this reader, or only ones that are
  // whole where rows of a microbatch are wanted, or the reverse: the owner makes and sends those.
  bool NeedsImport(const PieceKey& key, ValueId value, const Sharding& required) {
    const std::vector<Version>& versions = Versions(key.stage, value);
    if (versions_.FirstReadable(versions, key) == versions.size()) return true;
    const std::vector<int>& owners = stages_.node_stages[ProducerIndex(value)];
    if (IsParam(value) || std::find(owners.begin(), owners.end(), key.stage) != owners.end())
      return false;
    const Version& best = versions[versions_.Best(versions, key, required)];
    return ValueVersions::HasRows(ValueVersions::SeenBy(best, key)) !=
           ValueVersions::HasRows(required);
  }

  Result<ValueId> ComputeConstant(const PieceKey& key, ValueId value, const Sharding& required) {
    if (const auto strategy = BlockStrategy(graph_, value, required, MeshOf(key.stage))) {
      return ComputeBlock(key, value, *strategy);
    }
    const Sharding whole = Sharding::Replicated(graph_.type(value).rank());
    MW_ASSIGN_OR_RETURN(const ValueId local, Get(key, value, whole));
    return Convert(key, value, local, whole, required);
  }

  Result<ValueId> ComputeBlock(const PieceKey& key, ValueId value, const NodeStrategy& strategy) {
    const Node& node = graph_.producer(value);
    MW_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs, EmitIn(key, node, strategy));
    const auto r = static_cast<size_t>(std::find(node.outputs.begin(), node.outputs.end(), value) -
                                       node.outputs.begin());
    MW_CHECK(r < outputs.size()) << "%" << value << " is no result of its block";
    AddVersion(key, value, strategy.results[r], outputs[r]);
    return outputs[r];
  }

  // A form of the value that `key` computes.
  void AddVersion(const PieceKey& key, ValueId value, const Sharding& sharding, ValueId local) {
    BuilderOf(key).locals[{value, sharding}] = local;
    Version version;
    version.sharding = sharding;
    version.piece = key;
    version.local = local;
    version.of_param = IsParam(value);
    version.own_piece_only =
        SharesVocabulary(layout_) && key.phase == Phase::kBackward && key.chunk == kOutputChunk;
    Versions(key.stage, value).push_back(version);
  }

  Result<ValueId> BringIn(const PieceKey& key, ValueId value, size_t index) {
    MW_CHECK(index < Versions(key.stage, value).size())
        << "%" << value << " has no version " << index;
    if (Versions(key.stage, value)[index].piece == key)
      return Versions(key.stage, value)[index].local;
    MW_ASSIGN_OR_RETURN(const TensorIndex tensor, Export(key, value, index));
    const Version& version = Versions(key.stage, value)[index];
    PieceBuilder& piece = BuilderOf(key);
    const Sharding sharding = ValueVersions::SeenBy(version, key);
    if (const auto it = piece.locals.find({value, sharding}); it != piece.locals.end())
      return it->second;
    const ValueId local = AddInput(piece, tensor);
    piece.locals[{value, sharding}] = local;
    return local;
  }

  ValueId AddInput(PieceBuilder& piece, TensorIndex tensor) {
    MW_CHECK(tensor != kNoTensor) << "a piece reads what is not exported";
    const StageTensor& info = result_.tensors[tensor];
    piece.inputs.push_back(tensor);
    return piece.builder.AddOne(Op::kInput, {}, {{"name", info.name}}, {info.local_type});
  }

  // The tensor in which the version outlives its piece: for the update the sum over microbatches,
  // for other readers the version as it is. One version can have both.
  Result<TensorIndex> Export(const PieceKey& reader, ValueId value, size_t index) {
    Version& version = Versions(reader.stage, value)[index];
    if (!version.piece) return version.tensor;
    const PieceKey producer = *version.piece;
    const bool crosses_to_update =
        producer.phase != Phase::kUpdate && reader.phase == Phase::kUpdate;
    const bool summed = version.sharding.partial != ValueVersions::SeenBy(version, reader).partial;
    if (crosses_to_update && !summed && layout_.microbatches > 1) {
      return Fail(InvalidArgument(fmt::format(
          "%{} is not a sum over the rows of the batch, but the update needs the sum over "
          "{} microbatches: let the loss depend on the data, or use microbatches=1",
          value.value(), layout_.microbatches)));
    }
    TensorIndex& tensor = summed ? version.accumulator : version.tensor;
    if (tensor != kNoTensor) return tensor;
    const bool gradient = crosses_to_update && producer.phase == Phase::kBackward;
    const bool once = producer.phase == Phase::kUpdate || producer.round == kOncePerStep;
    const auto kind = gradient                           ? ir::MemoryKind::kGradients
                      : producer.phase == Phase::kUpdate ? ir::MemoryKind::kOther
                      : once                             ? ir::MemoryKind::kWeights
                                                         : ir::MemoryKind::kActivations;
    PieceBuilder& piece = BuilderOf(producer);
    if (!summed) {
      const TensorRole role = once ? TensorRole::kStep : TensorRole::kMicrobatch;
      tensor = AddTensor(reader.stage, value, version.sharding, role, kind);
      piece.outputs.emplace_back(tensor, version.local);
      return tensor;
    }
    tensor = AddTensor(reader.stage, value, WithoutAxis(version.sharding, kMicro),
                       TensorRole::kAccumulator, kind);
    const ValueId previous = AddInput(piece, tensor);
    const ValueId sum = piece.builder.AddOne(Op::kAdd, {previous, version.local});
    piece.outputs.emplace_back(tensor, sum);
    return tensor;
  }

  // ---- between stages ----

  Status ImportValue(const PieceKey& reader, ValueId value, const Sharding& required) {
    const auto& owners = stages_.node_stages[graph_.value(value).producer.index()];
    if (owners.empty()) return Internal(fmt::format("%{} is computed nowhere", value.value()));
    const int from = owners.front();
    const std::vector<Version>& sources = Versions(from, value);
    if (sources.empty()) return Internal(fmt::format("%{} is read too early", value.value()));
    const bool update = reader.phase == Phase::kUpdate;
    PieceKey after = sources.front().piece.value_or(PieceKey{from, Phase::kForward, 0});
    if (update && after.phase != Phase::kUpdate) after = {from, Phase::kUpdate, 0};
    Sharding resolved = ValueVersions::SeenBy(sources.front(), after);
    if (!resolved.partial.empty()) {
      const auto own =
          update ? ReadInUpdate(graph_, stages_, StrategiesOf(from), from, value) : std::nullopt;
      resolved.partial.clear();
      // A summand of a microbatch crosses as what it is.
      const bool summed = WithoutAxis(required, kMicro).partial.empty();
      if (summed) resolved = own.value_or(OnMesh(required, MeshOf(from)));
    } else if (ValueVersions::HasRows(required) && !ValueVersions::HasRows(resolved)) {
      // Whole here, rows there: only this stage has what the rows are computed from.
      resolved = OnMesh(required, MeshOf(from));
    }
    MW_TRY(Get(after, value, resolved));
    MW_ASSIGN_OR_RETURN(const TensorIndex source, ExportFor(after, value, resolved));
    Version version;
    version.sharding = Scatter(reader.stage, value, ArrivesAs(reader.stage, required, resolved));
    version.tensor = AddTensor(reader.stage, value, version.sharding,
                               update ? TensorRole::kStep : TensorRole::kMicrobatch,
                               update ? ir::MemoryKind::kOther : ir::MemoryKind::kActivations,
                               result_.tensors[source].name);
    Versions(reader.stage, value).push_back(version);
    // W of a part runs behind its B, which may read the value as well.
    PieceKey before = reader;
    before.weights = false;
    BuilderOf(before);
    result_.imports.push_back({source, version.tensor, after, before});
    return OkStatus();
  }

  // What the sender has means something else on a mesh of another size: there, what is read first.
  Sharding ArrivesAs(int stage, const Sharding& required, const Sharding& sent) const {
    if (!differ()) return sent;
    const bool can_be_sent = WithoutAxis(required, kMicro).partial.empty() &&
                             ValueVersions::HasRows(required) == ValueVersions::HasRows(sent);
    return can_be_sent ? required : OnMesh(sent, MeshOf(stage));
  }

  // The tensor of the version with this sharding, as another stage's reader sees it.
  Result<TensorIndex> ExportFor(const PieceKey& after, ValueId value, const Sharding& sharding) {
    const std::vector<Version>& versions = Versions(after.stage, value);
    std::optional<size_t> best;
    for (size_t i = 0; i < versions.size(); ++i) {
      if (ValueVersions::SeenBy(versions[i], after) != sharding) continue;
      if (versions[i].piece && *versions[i].piece > after) continue;
      if (!versions_.IsReadable(versions[i], after)) continue;
      // What `after` computes itself needs no other piece.
      if (!best || versions[i].piece == after) best = i;
    }
    if (!best) return Fail(Internal(fmt::format("%{} has no version to send", value.value())));
    return Export(after, value, *best);
  }

  // A replica on every tensor device need not be sent that often: each receives a part and the
  // group gathers.
  Sharding Scatter(int stage, ValueId value, Sharding sharding) const {
    const int64_t tensor = layout_.DegreesOf(stage).tensor();
    const std::vector<ir::MeshAxis> axes = TensorAxes(layout_);
    const bool split = std::any_of(axes.begin(), axes.end(), [&](const ir::MeshAxis& axis) {
      return sharding.UsesAxis(axis.name);
    });
    if (tensor == 1 || split) return sharding;
    const ir::TensorType local = LocalType(stage, value, sharding);
    if (local.bytes() < kScatterMinBytes) return sharding;
    for (size_t d = sharding.dims.size(); d-- > 0;) {
      if (local.dims[d] % tensor != 0) continue;
      for (const ir::MeshAxis& axis : axes) sharding.dims[d].push_back(axis.name);
      return sharding;
    }
    return sharding;
  }

  // ---- resharding inside a piece ----

  Result<ValueId> Convert(const PieceKey& key, ValueId value, ValueId local, const Sharding& from,
                          const Sharding& to) {
    PieceBuilder& piece = BuilderOf(key);
    MW_ASSIGN_OR_RETURN(const ValueId converted, EmitReshard(piece.builder, graph_.type(value),
                                                             local, from, to, MeshOf(key.stage)));
    AddVersion(key, value, to, converted);
    Versions(key.stage, value).back().own_piece_only |=
        ValueVersions::GathersBlocks(from, to) && IsGatheredAgain(key, graph_.producer(value));
    return converted;
  }

  // Weights in blocks by every piece, and activations where the layer's backward keeps blocks.
  bool IsGatheredAgain(const PieceKey& key, const Node& producer) const {
    if (producer.op == Op::kParam || IsWeightCast(graph_, producer)) return true;
    return key.phase == Phase::kForward && producer.phase == Phase::kForward &&
           ModeOfLayer(layout_.recompute, producer.layer) >= Recompute::kGathers;
  }

  // ---- emitting nodes ----

  // Update rounds: a node runs one round after the latest value that it gets from another stage.
  int RoundOf(const Node& node, int stage) {
    int round = 0;
    for (ValueId input : node.inputs) {
      if (IsParam(input) || IsConstant(input)) continue;
      round = std::max(round, FirstRound(input, stage));
    }
    return round;
  }

  // The first update round of the stage that can read the value.
  int FirstRound(ValueId value, int stage) {
    const std::vector<Version>& here = Versions(stage, value);
    const size_t readable = versions_.FirstReadable(here, {stage, Phase::kUpdate, 0});
    if (readable < here.size()) return ReadyRound(here[readable]);
    const std::vector<int>& owners = stages_.node_stages[ProducerIndex(value)];
    const std::vector<Version>& there = Versions(owners.empty() ? stage : owners.front(), value);
    return there.empty() ? 1 : ReadyRound(there.front()) + 1;
  }

  int ReadyRound(const Version& version) const {
    if (version.piece) return version.piece->phase == Phase::kUpdate ? version.piece->round : 0;
    for (const Import& import : result_.imports) {
      if (import.destination == version.tensor)
        return import.before.phase == Phase::kUpdate ? import.before.round : 0;
    }
    return 0;
  }

  // The pieces that compute a node; rounds of the update depend on what was emitted before.
  std::vector<PieceKey> PlacesOf(size_t index) {
    const Node& node = graph_.nodes[index];
    std::vector<PieceKey> keys;
    if (node.phase == Phase::kUpdate) {
      for (const int stage : stages_.node_stages[index]) {
        keys.push_back({stage, node.phase, RoundOf(node, stage)});
      }
      return keys;
    }
    for (const int part : stages_.node_parts[index]) {
      PieceKey key{stages_.shape.StageOf(part), node.phase, 0, stages_.shape.ChunkOf(part)};
      key.weights = layout_.SplitsBackward() && stages_.is_weight_gradient[index];
      // What other stages read is sent with every microbatch, and so is made with it.
      if (IsWeightCast(graph_, node) && IsReadHereOnly(node, users_, stages_, key.stage)) {
        key = {key.stage, node.phase, kOncePerStep};
      }
      if (node.attrs.Has(kSweepAttr)) key.round = kSweep;
      keys.push_back(key);
    }
    return keys;
  }

  Status Emit(size_t index, const PieceKey& key) {
    const Node& node = graph_.nodes[index];
    const NodeStrategy& strategy = StrategiesOf(key.stage).nodes[index];
    MW_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs, EmitIn(key, node, strategy));
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      AddVersion(key, node.outputs[r], strategy.results[r], outputs[r]);
      MW_TRY(KeepForOthers(key, node.outputs[r], strategy.results[r], outputs[r]));
    }
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      const auto param = renewed_.find(node.outputs[r]);
      if (param != renewed_.end()) MW_TRY(Renew(key, node, r, param->second, outputs[r]));
    }
    return OkStatus();
  }

  // The form in which later pieces read the value, made where the value is.
  Status KeepForOthers(const PieceKey& key, ValueId value, const Sharding& produced,
                       ValueId local) {
    const auto& forms = StrategiesOf(key.stage).kept_as;
    const auto it = forms.find(value);
    if (it == forms.end() || key.phase == Phase::kUpdate) return OkStatus();
    Sharding wanted = it->second;
    if (produced.partial.contains(kMicro)) wanted.partial[kMicro] = produced.partial.at(kMicro);
    if (wanted == produced) return OkStatus();
    MW_TRY(Convert(key, value, local, produced, wanted));
    Versions(key.stage, value).back().own_piece_only = false;
    Versions(key.stage, value).back().kept = true;
    return OkStatus();
  }

  // The node in `key`, with its operands as the strategy wants them; returns its results.
  Result<std::vector<ValueId>> EmitIn(const PieceKey& key, const Node& node,
                                      const NodeStrategy& strategy) {
    MW_CHECK(strategy.operands.size() >= node.inputs.size()) << ir::OpName(node.op);
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      MW_ASSIGN_OR_RETURN(const ValueId local, Get(key, node.inputs[i], strategy.operands[i]));
      inputs.push_back(local);
    }
    PieceBuilder& piece = BuilderOf(key);
    piece.builder.SetLayer(node.layer);
    std::vector<ValueId> outputs =
        EmitLocalNode(piece.builder, graph_, node, strategy, inputs, MeshOf(key.stage));
    MW_TRY(piece.builder.status());
    return outputs;
  }

  // Result i, `renewed`, replaces `value`, a param, as that is stored.
  Status Renew(const PieceKey& key, const Node& node, size_t i, ValueId value, ValueId renewed) {
    const Version& param = ParamVersion(key.stage, value);
    const Sharding& made = StrategiesOf(key.stage).nodes[NodeIndex(node)].results[i];
    if (made != param.sharding) {
      MW_ASSIGN_OR_RETURN(renewed, Convert(key, node.outputs[i], renewed, made, param.sharding));
    }
    BuilderOf(key).outputs.emplace_back(param.tensor, renewed);
    return OkStatus();
  }

  size_t NodeIndex(const Node& node) const { return ProducerIndex(node.outputs[0]); }

  // ---- finishing ----

  // Scalars of the update, and the token count, which forward pieces accumulate.
  bool IsReport(const ir::NamedValue& output) const {
    if (output.name.starts_with("grad/") || output.name.starts_with("update/")) return false;
    return graph_.producer(output.value).phase == Phase::kUpdate || output.name == "tokens";
  }

  Status CollectReports() {
    const int stage = stages_.last_stage();
    for (const ir::NamedValue& output : graph_.outputs) {
      if (!IsReport(output)) continue;
      if (Versions(stage, output.value).empty()) {
        return Internal(fmt::format("\"{}\" is not computed in the last stage", output.name));
      }
      const PieceKey key{stage, Phase::kUpdate, FirstRound(output.value, stage)};
      const Sharding form = WithoutPartials(StrategiesOf(stage).values[output.value]);
      MW_TRY(Get(key, output.value, form));
      MW_ASSIGN_OR_RETURN(const TensorIndex tensor, ExportFor(key, output.value, form));
      const bool scalar = graph_.type(output.value).rank() == 0;
      (scalar ? result_.reports : result_.outputs).push_back({output.name, tensor});
    }
    return OkStatus();
  }

  // Accumulators start a step at zero.
  void AddZeroPieces() {
    std::map<int, std::vector<TensorIndex>> accumulators;
    TensorIndex next(0);
    for (const StageTensor& tensor : result_.tensors) {
      if (tensor.role == TensorRole::kAccumulator) accumulators[tensor.stage].push_back(next);
      next = TensorIndex(next.value() + 1);
    }
    for (const auto& [stage, tensors] : accumulators) {
      PieceBuilder& piece = BuilderOf({stage, Phase::kForward, kOncePerStep});
      for (TensorIndex tensor : tensors) {
        const ir::TensorType& type = result_.tensors[tensor].local_type;
        piece.outputs.emplace_back(
            tensor, piece.builder.AddOne(Op::kConstant, {}, {{"value", 0.0}}, {type}));
      }
    }
  }

  Result<Partition> Finish(int64_t bucket_bytes) {
    std::map<TensorIndex, int64_t> made;  // when, as a microbatch passes the stage; in nodes
    int64_t nodes = 0;
    for (auto& [key, piece] : pieces_) {
      Piece finished;
      finished.key = key;
      finished.inputs = piece.inputs;
      for (const auto& [tensor, local] : piece.outputs) {
        piece.builder.SetOutput(result_.tensors[tensor].name, local);
        finished.outputs.push_back(tensor);
      }
      MW_ASSIGN_OR_RETURN(Graph graph, piece.builder.Finish());
      // A value of which only blocks were wanted is computed by nobody.
      MW_ASSIGN_OR_RETURN(graph, ir::DropDeadNodes(graph));
      if (key.phase == Phase::kUpdate) {
        std::vector<int64_t> inputs_made;
        for (const TensorIndex input : piece.inputs) inputs_made.push_back(made[input]);
        MW_ASSIGN_OR_RETURN(graph, CoalesceAllReduces(graph, bucket_bytes, inputs_made));
      }
      for (size_t o = 0; o < graph.outputs.size(); ++o) {
        made[finished.outputs[o]] = nodes + graph.value(graph.outputs[o].value).producer.value();
      }
      nodes += static_cast<int64_t>(graph.nodes.size());
      finished.graph = std::make_shared<const Graph>(std::move(graph));
      result_.pieces.push_back(std::move(finished));
    }
    return std::move(result_);
  }

  const Graph& graph_;
  const StageAssignment& stages_;
  const Strategies& strategies_;
  const Layout& layout_;
  std::vector<mesh::Mesh> meshes_;            // per stage
  std::vector<Strategies> stage_strategies_;  // per stage, where they differ
  const IdVector<ValueId, std::vector<NodeId>> users_;
  const std::vector<bool> constant_;  // per node
  Partition result_;
  ValueVersions versions_;
  const std::map<ValueId, ValueId> renewed_;  // by the value that renews it, a param
  std::map<PieceKey, PieceBuilder> pieces_;
  std::map<ValueId, int> name_counts_;
};

}  // namespace

Result<Partition> MakePartition(const Graph& graph, const StageAssignment& stages,
                                const Strategies& strategies, const Layout& layout,
                                int64_t bucket_bytes) {
  return Partitioner(graph, stages, strategies, layout).Run(bucket_bytes);
}

}  // namespace meshwright::planner
