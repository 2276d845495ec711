#include "planner/expert_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/rewrite.h"
#include "planner/resolve_layout.h"

namespace meshwright::planner {
namespace {

using ir::Builder;
using ir::Graph;
using ir::Node;
using ir::Op;

// Of a product that a person would round down.
constexpr double kOfRounding = 1e-9;

// What has no slots behind it.
bool LeavesSlots(Op op) {
  return op == Op::kCombine || op == Op::kCombineGradWeights || op == Op::kGroupedMatmulGrad;
}

// Per value: whether it has slots, or names them. `slots` as the client's layer makes them.
std::vector<bool> OfSlots(const Graph& graph) {
  std::vector<bool> of_slots(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.op == Op::kExpertSlots) of_slots[node.outputs[0].index()] = true;
    if (node.op == Op::kExpertSlots || LeavesSlots(node.op)) continue;
    const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(),
                                   [&](ValueId input) { return of_slots[input.index()]; });
    for (const ValueId output : node.outputs) of_slots[output.index()] = reads;
  }
  return of_slots;
}

using Values = std::vector<ValueId>;

ValueId Moved(Builder& builder, ValueId slots, int64_t split, const char* axis) {
  if (!slots.valid()) return slots;
  ir::Attrs attrs = {{kSplitAttr, split}};
  if (*axis != 0) attrs.Set(kMovedAxisAttr, std::string(axis));
  return builder.AddOne(Op::kReshape, {slots}, attrs, {builder.type(slots)});
}

// Rows apart, and together again.
class RowChunks {
 public:
  explicit RowChunks(int64_t count) : count_(count) { MW_CHECK(count >= 1) << count; }

  size_t count() const { return static_cast<size_t>(count_); }

  // Every count-th row of a value of the new graph, from row `chunk` on.
  ValueId Of(Builder& builder, ValueId value, size_t chunk) {
    if (count_ == 1 || !value.valid()) return value;
    Values& parts = parts_[value];
    if (parts.empty()) {
      const ir::TensorType whole = builder.type(value);
      ir::TensorType apart = whole;
      apart.dims[0] /= count_;
      const ir::TensorType part = apart;
      apart.dims.insert(apart.dims.begin() + 1, count_);
      const ValueId rows = builder.AddOne(Op::kReshape, {value}, {}, {apart});
      for (int64_t i = 0; i < count_; ++i) {
        const ValueId cut = builder.AddOne(
            Op::kSlice, {rows}, {{"dim", int64_t{1}}, {"start", i}, {"size", int64_t{1}}});
        parts.push_back(builder.AddOne(Op::kReshape, {cut}, {}, {part}));
      }
    }
    return parts[chunk];
  }

  ValueId Join(Builder& builder, const Values& parts) const {
    if (count_ == 1 || !builder.status().ok()) return parts[0];
    Values apart;
    ir::TensorType whole = builder.type(parts[0]);
    for (const ValueId part : parts) {
      ir::TensorType type = whole;
      type.dims.insert(type.dims.begin() + 1, 1);
      apart.push_back(builder.AddOne(Op::kReshape, {part}, {}, {type}));
    }
    whole.dims[0] *= count_;
    const ValueId rows = builder.AddOne(Op::kConcat, apart, {{"dim", int64_t{1}}});
    return builder.AddOne(Op::kReshape, {rows}, {}, {whole});
  }

 private:
  const int64_t count_;
  std::map<ValueId, Values> parts_;
};

// Tokens on their way in two steps, and what hosts say to them on the way back. `slot`: what names
// the slots of a chunk.
class HostSteps {
 public:
  explicit HostSteps(int64_t hosts) : hosts_(hosts) { MW_CHECK(hosts > 1) << hosts << " hosts"; }

  ValueId ToHosts(Builder& builder, ValueId x, ValueId slot, const ExpertSlots& own) {
    const Places& places = PlacesOf(builder, slot, own);
    return Moved(builder, builder.AddOne(Op::kDispatch, {x, places.of_tokens}, places.to_hosts),
                 kByExperts, kExpert);
  }

  ValueId ToRanks(Builder& builder, ValueId sent, ValueId slot) const {
    if (!builder.status().ok()) return ValueId();
    const Places& places = places_.at(slot);
    return Moved(builder, builder.AddOne(Op::kDispatch, {sent, places.within}, places.to_ranks),
                 kByExperts, kExpertLanes);
  }

  // y: with the host's own ranks; the result is with the tokens' ranks.
  ValueId SumOfHost(Builder& builder, ValueId y, ValueId slot, ValueId weights) const {
    if (!builder.status().ok()) return ValueId();
    const Places& places = places_.at(slot);
    Values operands = {y, places.within};
    if (weights.valid()) {
      ir::Attrs attrs = places.to_hosts;
      attrs.Set("statistic", int64_t{1});
      const ValueId sent = builder.AddOne(Op::kDispatch, {weights, places.of_tokens}, attrs);
      // A place has the weights of all choices of its token.
      operands.push_back(Moved(builder, sent, kByExperts, kExpert));
    }
    return Moved(builder, builder.AddOne(Op::kCombine, operands), kByRows, kExpert);
  }

  ValueId SumOfHosts(Builder& builder, ValueId sums, ValueId slot) const {
    if (!builder.status().ok()) return ValueId();
    return builder.AddOne(Op::kCombine, {sums, places_.at(slot).of_tokens});
  }

 private:
  struct Places {
    ValueId of_tokens;  // by rows
    ValueId within;     // by hosts
    ir::Attrs to_hosts, to_ranks;
  };

  const Places& PlacesOf(Builder& builder, ValueId slot, const ExpertSlots& own) {
    const auto [at, fresh] = places_.try_emplace(slot);
    if (!fresh || !builder.status().ok()) return at->second;
    const int64_t capacity = HostCapacity(own, hosts_, builder.type(slot).dims[1]);
    const Values results = builder.Add(Op::kExpertSlots, {slot},
                                       {{"hosts", hosts_},
                                        {"groups", own.groups},
                                        {"capacity", own.capacity},
                                        {"host_capacity", capacity}});
    at->second = {results[0], Moved(builder, results[1], kByExperts, kExpert),
                  ir::Attrs{{"groups", hosts_}, {"capacity", capacity}},
                  ir::Attrs{{"groups", own.groups / hosts_}, {"capacity", own.capacity}}};
    return at->second;
  }

  const int64_t hosts_;
  std::map<ValueId, Places> places_;
};

class ExpertWriter {
 public:
  ExpertWriter(const Graph& graph, const Layout& layout, int64_t chunks)
      : graph_(graph),
        degree_(layout.expert()),
        chunks_(chunks),
        slots_(graph.values.size()),
        chunks_of_(graph.values.size()) {
    MW_CHECK(degree_ % layout.expert_hosts == 0) << layout.ToString();
    if (layout.expert_hosts > 1) hosts_.emplace(layout.expert_hosts);
  }

  Result<Graph> Run() {
    Result<Graph> written =
        ir::RewriteGraph(graph_, [this](Builder& builder, const Node& node, const Values& inputs,
                                        const std::vector<ir::TensorType>& types) {
          return Emit(builder, node, inputs, types);
        });
    MW_CHECK(waiting_.empty() && sends_.empty())
        << "slots that are never combined, in " << graph_.name;
    return written;
  }

 private:
  // A node of slots whose chunks are written when they are combined.
  struct Waiting {
    Node node;
    Values inputs;
    std::vector<ir::TensorType> types;
  };
  // A dispatch whose chunks are sent then.
  struct Send {
    Node node;
    Values inputs;
    ExpertSlots own;
    Values on_hosts;
  };

  // Of the slots that a value names, or has.
  std::optional<ExpertSlots> Find(const Node& node) const {
    for (const ValueId input : node.inputs) {
      if (slots_[input.index()]) return slots_[input.index()];
    }
    return std::nullopt;
  }

  Values Emit(Builder& builder, const Node& node, const Values& inputs,
              const std::vector<ir::TensorType>& types) {
    if (node.op == Op::kExpertSlots) return EmitSlots(builder, node, inputs, types);
    const std::optional<ExpertSlots> own = Find(node);
    if (!own) return builder.Add(node.op, inputs, node.attrs, types);
    if (!LeavesSlots(node.op)) {
      for (const ValueId output : node.outputs) slots_[output.index()] = own;
    }
    if (node.op == Op::kDispatch) return EmitDispatch(builder, node, inputs, *own);
    if (node.op == Op::kCombine) return EmitCombine(builder, node, inputs);
    if (chunks_.count() == 1) return EmitInner(builder, {node, inputs, types}, 0);
    waiting_.push_back({node, inputs, types});
    return Values(node.outputs.size());
  }

  Values EmitSlots(Builder& builder, const Node& node, const Values& inputs,
                   const std::vector<ir::TensorType>& types) {
    const ExpertSlots own = SlotsOnRanks(graph_, node, degree_);
    slots_[node.outputs[0].index()] = own;
    Values results = builder.Add(node.op, inputs, AttrsOn(node, own), types);
    // Nothing is computed before its counts are there: they go first.
    CountsOf(builder, results[1]);
    return results;
  }

  Values EmitDispatch(Builder& builder, const Node& node, const Values& inputs,
                      const ExpertSlots& own) {
    Values& results = chunks_of_[node.outputs[0].index()];
    if (inputs.size() > 2) {
      MW_CHECK(chunks_.count() == 1 && !hosts_) << "a dispatch with weights, in " << graph_.name;
      results = builder.Add(node.op, inputs, AttrsOn(node, own));
      return results;
    }
    sends_.push_back({node, inputs, own, {}});
    if (chunks_.count() > 1) return {ValueId()};
    FirstStep(builder, 0);
    SecondStep(builder, 0);
    sends_.clear();
    return results;
  }

  static ir::Attrs AttrsOn(const Node& node, const ExpertSlots& own) {
    ir::Attrs attrs = node.attrs;
    attrs.Set("groups", own.groups);
    attrs.Set("capacity", own.capacity);
    return attrs;
  }

  // A node of slots, of one chunk.
  Values EmitInner(Builder& builder, const Waiting& of, size_t chunk) {
    const Node& node = of.node;
    const ExpertSlots own = *Find(node);
    ir::Attrs attrs = node.attrs;
    const bool product = node.op == Op::kGroupedMatmul || node.op == Op::kGroupedMatmulGrad;
    if (product) attrs.Set("groups", own.groups);
    const bool of_chunk = !LeavesSlots(node.op);
    std::vector<ir::TensorType> declared = of.types;
    for (ir::TensorType& type : declared) {
      if (!of_chunk || type.rank() < 4) continue;
      type.dims[0] /= static_cast<int64_t>(chunks_.count());
      type.dims[1] = own.groups;
      type.dims[2] = own.capacity;
    }
    Values operands = of.inputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Values& chunks = chunks_of_[node.inputs[i].index()];
      if (!chunks.empty()) operands[i] = chunks[chunk];
      if (product && i == 1)
        operands[i] = chunks_.Of(builder, CountsOf(builder, operands[i]), chunk);
    }
    Values results = builder.Add(node.op, operands, attrs, declared);
    for (size_t r = 0; of_chunk && r < node.outputs.size(); ++r) {
      chunks_of_[node.outputs[r].index()].push_back(results[r]);
    }
    return results;
  }

  // All that waits, in an order in which moves can be made beside products. In two steps those
  // between hosts are beside, those within a host in their turn: in the order of the list a move
  // within would wait for all moves between that are before it.
  Values EmitCombine(Builder& builder, const Node& node, const Values& inputs) {
    Values back;  // of each chunk, as far as it is on its way
    const size_t ahead = hosts_ ? 1 : chunks_.count();
    for (size_t i = 0; i < ahead; ++i) FirstStep(builder, i);
    for (size_t i = 0; i < ahead; ++i) SecondStep(builder, i);
    for (size_t i = 0; i < chunks_.count(); ++i) {
      const bool more = hosts_ && i + 1 < chunks_.count();
      if (more) FirstStep(builder, i + 1);
      for (const Waiting& one : waiting_) EmitInner(builder, one, i);
      const Values& chunks = chunks_of_[node.inputs[0].index()];
      MW_CHECK(i < chunks.size()) << "what is combined has " << chunks.size() << " chunks";
      back.push_back(Moved(builder, chunks[i], kByRows, hosts_ ? kExpertLanes : ""));
      if (more) SecondStep(builder, i + 1);
      if (!hosts_) continue;
      const ValueId weights = inputs.size() > 2 ? chunks_.Of(builder, inputs[2], i) : ValueId();
      back[i] = hosts_->SumOfHost(builder, back[i], chunks_.Of(builder, inputs[1], i), weights);
    }
    sends_.clear();
    waiting_.clear();
    Values sums;
    for (size_t i = 0; i < chunks_.count(); ++i) {
      Values operands = {back[i]};
      for (size_t o = 1; o < inputs.size(); ++o) {
        operands.push_back(chunks_.Of(builder, inputs[o], i));
      }
      sums.push_back(hosts_ ? hosts_->SumOfHosts(builder, back[i], operands[1])
                            : builder.AddOne(node.op, operands, node.attrs));
    }
    return {chunks_.Join(builder, sums)};
  }

  // Of all sends: to the hosts of a chunk's experts, or, in one step, to their ranks.
  void FirstStep(Builder& builder, size_t chunk) {
    for (Send& send : sends_) {
      const ValueId x = chunks_.Of(builder, send.inputs[0], chunk);
      const ValueId slot = chunks_.Of(builder, send.inputs[1], chunk);
      if (hosts_) {
        send.on_hosts.push_back(hosts_->ToHosts(builder, x, slot, send.own));
        continue;
      }
      const ValueId slots = builder.AddOne(Op::kDispatch, {x, slot}, AttrsOn(send.node, send.own));
      chunks_of_[send.node.outputs[0].index()].push_back(Moved(builder, slots, kByExperts, ""));
    }
  }

  void SecondStep(Builder& builder, size_t chunk) {
    for (const Send& send : sends_) {
      if (!hosts_) break;
      const ValueId slot = chunks_.Of(builder, send.inputs[1], chunk);
      chunks_of_[send.node.outputs[0].index()].push_back(
          hosts_->ToRanks(builder, send.on_hosts[chunk], slot));
    }
  }

  // How many slots each expert has, where the experts are, for all chunks at once.
  ValueId CountsOf(Builder& builder, ValueId used) {
    if ((!hosts_ && chunks_.count() == 1) || !used.valid()) return used;
    const auto [at, fresh] = counts_.try_emplace(used);
    if (!fresh) return at->second;
    at->second = Moved(builder, used, kByExperts, hosts_ ? kExpert : "");
    if (hosts_) at->second = Moved(builder, at->second, kByExperts, kExpertLanes);
    return at->second;
  }

  const Graph& graph_;
  const int64_t degree_;
  RowChunks chunks_;
  std::optional<HostSteps> hosts_;                 // in two steps
  std::vector<std::optional<ExpertSlots>> slots_;  // per value of the old graph
  std::vector<Values> chunks_of_;                  // per value of the old graph that has slots
  std::vector<Send> sends_;
  std::vector<Waiting> waiting_;
  std::map<ValueId, ValueId> counts_;
};

// Experts of the graph's layers; 0: it has none. Errors: as many as the degree does not divide.
Result<int64_t> ExpertsOf(const Graph& graph, int64_t degree) {
  int64_t most = 0;
  for (const NodeId id : graph.NodesOf(Op::kExpertSlots)) {
    const int64_t experts = graph.node(id).attrs.Int("experts");
    if (experts % degree != 0) {
      return Fail(InvalidField("parallel.expert",
                               fmt::format("is {}, which does not divide {} experts; choose one of "
                                           "{{{}}}",
                                           degree, experts, DivisorList(experts, experts))));
    }
    most = std::max(most, experts);
  }
  return most;
}

// Of another program's rows there may be fewer.
int64_t ChunksOf(const Graph& graph, const Layout& layout) {
  int64_t chunks = layout.expert_chunks;
  for (const NodeId id : graph.NodesOf(Op::kExpertSlots)) {
    const int64_t rows = graph.type(graph.node(id).inputs[0]).dims[0];
    const int64_t devices = layout.data();
    const int64_t own = rows % devices == 0 ? rows / devices : 1;
    const int64_t micro = own % layout.microbatches == 0 ? own / layout.microbatches : own;
    chunks = std::gcd(chunks, micro);
  }
  return chunks;
}

}  // namespace

ExpertSlots SlotsOnRanks(const Graph& graph, const Node& node, int64_t degree) {
  const int64_t groups = node.attrs.Int("groups");
  MW_CHECK(degree > 1 && node.attrs.Int("experts") % degree == 0)
      << degree << " ranks for " << node.attrs.Int("experts") << " experts";
  if (groups % degree == 0) return {groups, node.attrs.Int("capacity")};
  const ir::Dims& choices = graph.type(node.inputs[0]).dims;
  // A token chooses an expert once.
  const int64_t of_group = node.attrs.Int("experts") / degree;
  const int64_t most = choices[1] * std::min(choices[2], of_group);
  const double factor = node.attrs.Real("slots_factor");
  if (factor <= 0) return {degree, most};
  const double mean = static_cast<double>(choices[1] * choices[2]) / static_cast<double>(degree);
  return {degree, std::clamp<int64_t>(static_cast<int64_t>(std::ceil(factor * mean - kOfRounding)),
                                      1, most)};
}

int64_t HostCapacity(const ExpertSlots& slots, int64_t hosts, int64_t tokens) {
  MW_CHECK(hosts >= 1 && slots.groups % hosts == 0) << slots.groups << " groups on " << hosts;
  return std::min(tokens, slots.groups / hosts * slots.capacity);
}

bool MovesPlainly(const Graph& graph) {
  const std::vector<bool> of_slots = OfSlots(graph);
  for (const Node& node : graph.nodes) {
    const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(),
                                   [&](ValueId input) { return of_slots[input.index()]; });
    if (!reads) continue;
    const bool weighed = node.op == Op::kDispatch && node.inputs.size() > 2;
    const bool gradient = node.op == Op::kCombineGradWeights || node.op == Op::kGroupedMatmulGrad;
    if (weighed || gradient) return false;
  }
  return std::none_of(graph.outputs.begin(), graph.outputs.end(),
                      [&](const auto& output) { return of_slots[output.value.index()]; });
}

Result<ir::JobRequest> WithExpertGroups(const ir::JobRequest& job, const Layout& layout) {
  ir::JobRequest grouped = job;
  int64_t most = 0;
  for (ir::JobProgram& program : grouped.programs) {
    MW_ASSIGN_OR_RETURN(const int64_t experts, ExpertsOf(program.graph, layout.expert()));
    most = std::max(most, experts);
    if (experts == 0) continue;
    const int64_t chunks = ChunksOf(program.graph, layout);
    MW_ASSIGN_OR_RETURN(program.graph, ExpertWriter(program.graph, layout, chunks).Run());
  }
  if (most > 0) return grouped;
  return Fail(InvalidField(
      "parallel.expert", fmt::format("is {}, but the model has no experts; leave it out, or use a "
                                     "model that has some (model.name = \"mixtral\")",
                                     layout.expert())));
}

}  // namespace meshwright::planner
