// What a device holds at once: params, optimizer state, gradients and kept activations always; in
// every layer what its nodes pass to each other.
#include <algorithm>
#include <set>
#include <utility>

#include "search/intra_model.h"

namespace meshwright::search {
namespace {

using ir::Node;
using ir::Phase;
using mesh::Sharding;
using planner::NodeStrategy;

class MemoryAdder {
 public:
  explicit MemoryAdder(IntraModel& model)
      : model_(model),
        stage_count_(static_cast<size_t>(model.stages->stage_count())),
        copies_(model.variables.size(), 0),
        counts_(model.variables.size(), std::vector<int64_t>(stage_count_)) {}

  void Run() {
    Count();
    FindKept();
    for (size_t v = 0; v < model_.variables.size(); ++v) SetMemory(v);
    std::set<std::vector<int>> moments;
    for (size_t stage = 0; stage < stage_count_; ++stage) AddMoments(stage, moments);
    for (const std::vector<int>& nodes : moments) {
      model_.problem.moments.push_back({nodes, model_.options.budget_bytes});
    }
  }

 private:
  // How many tensors of a variable every stage has.
  void Count() {
    for (size_t i = 0; i < model_.graph->nodes.size(); ++i) {
      const int variable = model_.VariableOf(i);
      if (variable == kNoVariable) continue;
      for (int stage : StagesOf(i)) ++counts_[Index(variable)][Index(stage)];
    }
    for (const auto& [key, form] : model_.forms) {
      counts_[Index(form)] = counts_[Index(model_.variable_of[Index(std::get<0>(key))])];
    }
  }

  static size_t Index(int i) { return static_cast<size_t>(i); }

  const std::vector<int>& StagesOf(size_t node) const {
    if (model_.NodeAt(node).op != ir::Op::kParam) return model_.stages->node_stages[node];
    return model_.stages->param_stages.at(model_.NodeAt(node).attrs.Str("name"));
  }

  // Results of forward nodes that backward nodes read.
  void FindKept() {
    for (size_t i = 0; i < model_.graph->nodes.size(); ++i) {
      const Node& node = model_.NodeAt(i);
      if (node.phase != Phase::kBackward) continue;
      for (ValueId input : node.inputs) {
        const size_t producer = model_.ProducerOf(input);
        const Node& source = model_.NodeAt(producer);
        if (source.phase != Phase::kForward || source.op == ir::Op::kParam) continue;
        if (IsCast(producer)) continue;
        kept_.emplace(model_.first[producer], model_.ResultIndex(input));
      }
    }
  }

  // Of a weight: made once per step, and there all the time.
  bool IsCast(size_t node) const {
    return planner::IsWeightCast(*model_.graph, model_.NodeAt(node));
  }

  bool IsKept(int node, int result) const { return kept_.contains({node, result}); }

  int64_t MostInAStage(size_t variable) const {
    return *std::max_element(counts_[variable].begin(), counts_[variable].end());
  }

  void SetMemory(size_t v) {
    const Variable& variable = model_.variables[v];
    std::vector<int64_t>& bytes = model_.problem.nodes[v].memory_bytes;
    if (variable.kind == VariableKind::kNode) {
      SetNodeMemory(v);
    } else {
      copies_[v] = variable.kind == VariableKind::kParam ? 1 : FormCopies(variable);
      for (size_t c = 0; IsLasting(v) && c < bytes.size(); ++c) bytes[c] = OwnBytes(variable, c);
    }
    if (!IsLasting(v)) return;
    for (int64_t& b : bytes) b *= copies_[v] * MostInAStage(v);
  }

  bool IsLasting(size_t v) const { return copies_[v] > 0; }

  // How many tensors of a form live all the time; 0: it passes by.
  int64_t FormCopies(const Variable& variable) const {
    const Node& producer = model_.NodeAt(Index(variable.node));
    const bool update = model_.forms.contains({variable.node, variable.result, Audience::kUpdate});
    if (producer.phase == Phase::kBackward && update) return 1;
    if (IsKept(variable.node, variable.result)) return model_.options.kept_microbatches;
    return 0;
  }

  int64_t OwnBytes(const Variable& variable, size_t choice) const {
    const ValueId value = model_.NodeAt(Index(variable.node)).outputs[Index(variable.result)];
    const bool param = variable.kind == VariableKind::kParam;
    const std::vector<Sharding>& base = model_.base.nodes[Index(variable.node)].results;
    const ir::TensorType type = param || base.empty()
                                    ? model_.graph->type(value)
                                    : model_.TypeWithin(value, base[Index(variable.result)]);
    return model_.LocalBytes(type, variable.shardings[choice]);
  }

  // The optimizer's state; else what backward nodes read that has no form; else all results, while
  // they pass by.
  void SetNodeMemory(size_t v) {
    const Variable& variable = model_.variables[v];
    const Node& node = model_.NodeAt(Index(variable.node));
    std::vector<int64_t>& bytes = model_.problem.nodes[v].memory_bytes;
    const bool optimizer = model_.IsOptimizer(Index(variable.node));
    const bool once = optimizer || IsCast(Index(variable.node));
    std::vector<size_t> lasting;
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      const FormKey key{variable.node, static_cast<int>(r), Audience::kForward};
      if (IsKept(variable.node, static_cast<int>(r)) && !model_.forms.contains(key))
        lasting.push_back(r);
    }
    if (once || !lasting.empty()) copies_[v] = once ? 1 : model_.options.kept_microbatches;
    for (size_t c = 0; c < bytes.size(); ++c) {
      const NodeStrategy& strategy = variable.strategies[c];
      if (optimizer) {
        for (size_t o = 0; o < node.inputs.size(); ++o) {
          if (!model_.IsState(model_.ProducerOf(node.inputs[o]))) continue;
          bytes[c] += model_.LocalBytes(model_.graph->type(node.inputs[o]), strategy.operands[o]);
        }
        continue;
      }
      for (size_t r = 0; r < node.outputs.size(); ++r) {
        const bool counts =
            lasting.empty() || std::find(lasting.begin(), lasting.end(), r) != lasting.end();
        if (counts)
          bytes[c] += model_.LocalBytes(model_.graph->type(node.outputs[r]), strategy.results[r]);
      }
    }
  }

  // ---- moments ----

  void AddMoments(size_t stage, std::set<std::vector<int>>& moments) const {
    std::set<int> always;
    for (size_t v = 0; v < copies_.size(); ++v) {
      if (IsLasting(v) && counts_[v][stage] > 0) always.insert(static_cast<int>(v));
    }
    // Nodes of the stage that equal none before, by layer and phase.
    std::map<std::pair<int, Phase>, std::vector<size_t>> groups;
    for (size_t i = 0; i < model_.graph->nodes.size(); ++i) {
      const int v = model_.VariableOf(i);
      const Node& node = model_.NodeAt(i);
      if (v == kNoVariable || model_.first[i] != static_cast<int>(i) || node.op == ir::Op::kParam)
        continue;
      if (counts_[Index(v)][stage] > 0) groups[{node.layer, node.phase}].push_back(i);
    }
    if (groups.empty()) moments.insert({always.begin(), always.end()});
    for (const auto& [key, nodes] : groups) {
      std::set<int> moment = Fullest(nodes);
      moment.insert(always.begin(), always.end());
      moments.insert({moment.begin(), moment.end()});
    }
  }

  // The variables whose results pass by at the moment when those of the group are largest, with
  // nothing split.
  std::set<int> Fullest(const std::vector<size_t>& nodes) const {
    std::map<size_t, size_t> last_read;  // place in `nodes` of the last reader
    for (size_t k = 0; k < nodes.size(); ++k) {
      last_read[nodes[k]] = k;
      for (ValueId input : model_.NodeAt(nodes[k]).inputs) {
        const auto it = last_read.find(model_.ProducerOf(input));
        if (it != last_read.end()) it->second = k;
      }
    }
    std::set<int> fullest;
    int64_t most = -1;
    for (size_t k = 0; k < nodes.size(); ++k) {
      std::set<int> alive;
      int64_t bytes = 0;
      for (size_t j = 0; j <= k; ++j) {
        const int v = model_.VariableOf(nodes[j]);
        if (last_read[nodes[j]] < k || IsLasting(Index(v)) || !alive.insert(v).second) continue;
        bytes += model_.problem.nodes[Index(v)].memory_bytes.front();
      }
      if (bytes <= most) continue;
      most = bytes;
      fullest = std::move(alive);
    }
    return fullest;
  }

  IntraModel& model_;
  const size_t stage_count_;
  std::vector<int64_t> copies_;               // per variable: alive all the time; 0: it passes by
  std::vector<std::vector<int64_t>> counts_;  // per variable and stage
  std::set<std::pair<int, int>> kept_;        // node and result
};

}  // namespace

void AddIntraMemory(IntraModel& model) { MemoryAdder(model).Run(); }

}  // namespace meshwright::search
