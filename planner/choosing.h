// Choosing: what the rules of planner/strategy.h know while they walk a graph, and what one node
// may do with one axis. A choice is made per node and axis, by the role of the axis
// (planner/axes.h); there is one file for each role.
//
// Two looks ahead of the rules. Adds that are worth doing on summands: x + attention + ffn of a
// parallel residual, each half partial over the tensor group, needs one reduction if x and biases
// are added before it.
//
// Can a dim of a value stay split all the way downstream? Looks ahead through the forward users: a
// factor that some user needs whole (a norm over the hidden dim, the head size in attention) says
// no; a contraction or reduction of it says yes. Where a reshape makes it the minor part of a dim,
// it is gathered: a block of it then lies in pieces all over the dim, which no sharding says.
//
// Thread rule: one thread. Ownership: borrows graph, stages and layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/id_vector.h"
#include "base/result.h"
#include "ir/graph.h"
#include "ir/schema.h"
#include "mesh/sharding.h"
#include "planner/layout.h"
#include "planner/stages.h"
#include "planner/strategy.h"

namespace meshwright::planner {

// Whether some dim of the node has the factor behind a larger one: splitting it splits no dim.
bool IsMinor(const ir::FactorRule& rule, ir::FactorIndex factor);

class SplitCheck {
 public:
  enum Verdict : uint8_t { kFits, kGathered, kDoesNotDivide, kNeededWhole };
  struct Answer {
    Verdict verdict = kFits;
    int64_t size = 0;            // the factor that does not divide
    bool is_vocabulary = false;  // ends in the loss
  };

  explicit SplitCheck(const ir::Graph& graph) : graph_(graph), users_(graph.Users()) {}

  // Splitting dim `dim` of `value` in `parts`.
  Answer Check(ValueId value, int dim, int64_t parts);

 private:
  Answer CheckUser(const ir::Node& user, size_t operand, int dim, int64_t parts);

  const ir::Graph& graph_;
  IdVector<ValueId, std::vector<NodeId>> users_;
};

// One axis' decision for one node.
struct Choice {
  std::string axis;
  std::optional<ir::FactorIndex> factor;  // that it splits
  bool passes_partial = false;            // a sum that is still to be made along it stays one
};

// A node, and how its operands come to it.
struct NodeAtHand {
  const ir::Node& node;
  const ir::FactorRule& rule;
  const std::vector<mesh::Sharding>& views;
};

struct Choosing {
  // suggest_up_to: the largest degree that errors name; sums_later: nodes that add what is summed
  // later (planner/choosing.h).
  Choosing(const ir::Graph& step_graph, const StageAssignment& assignment, const Layout& of,
           const std::map<std::string, mesh::Sharding>& known, int64_t suggest_up_to_degree,
           const std::set<size_t>& later);

  // The param that a value is, or is the cast of; "": none.
  std::string ParamName(ValueId id) const;
  // A param that no node has used yet takes whatever sharding its first user asks for.
  bool Unassigned(ValueId id) const;
  // A value as the node gets it.
  mesh::Sharding ViewOf(const ir::Node& node, ValueId id) const;
  // Sums over devices do not cross stages: every stage of the node must compute the operands too.
  bool SameStage(const ir::Node& node) const;
  bool CanSplit(const ir::FactorRule& rule, ir::FactorIndex factor, const std::string& axis) const;
  bool CanPassPartial(const NodeAtHand& at, const std::string& axis) const;
  // The factor along which most operand bytes are already split by the axis.
  std::optional<ir::FactorIndex> FollowOperands(const NodeAtHand& at,
                                                const std::string& axis) const;

  const ir::Graph& graph;
  const StageAssignment& stages;
  const Layout& layout;
  const std::map<std::string, mesh::Sharding>& known_params;
  const int64_t suggest_up_to;
  const std::set<size_t>& sums_later;
  const mesh::Mesh mesh;
  SplitCheck split_check;
  const IdVector<ValueId, std::vector<NodeId>> users;
  std::map<ValueId, std::string> gradient_of;  // or a contribution to it: of which param
  Strategies result;
  std::vector<std::string> unsplit;  // params of which the tensor axis splits nothing; one note
  int64_t tokens = 0;                // of a row, once they are split

 private:
  bool UsedElsewhere(ValueId value, const std::string& axis) const;
};

// int: of a `broadcast` that repeats heads for more devices than there are heads.
inline constexpr char kRepeatsAttr[] = "repeats";

bool SplitBy(const mesh::AxisList& axes, const std::string& axis);

// By role. Errors: kInvalidArgument, with the way out.
Result<Choice> ChooseRows(const NodeAtHand& at, const std::string& axis, const Choosing& choosing);
Result<Choice> ChooseExperts(const NodeAtHand& at, const std::string& axis,
                             const Choosing& choosing);
Result<Choice> ChooseSequence(const NodeAtHand& at, const std::string& axis, Choosing& choosing);
Result<Choice> ChooseTensor(const NodeAtHand& at, Choosing& choosing);

// The expansion of a node whose operands come like this, before its axes are chosen: its summands
// are added within. Nothing: it has none of that kind.
bool IsGroupedSum(const ir::Node& node, const std::vector<mesh::Sharding>& views,
                  const Choosing& choosing);
// Behind the choices, where strategy.operands are chosen: what of that the node does within itself.
void ExpandSums(const NodeAtHand& at, const std::vector<Choice>& choices, const Choosing& choosing,
                NodeStrategy& strategy);
void ExpandVocabulary(const NodeAtHand& at, const std::vector<Choice>& choices,
                      NodeStrategy& strategy);
void ExpandAttention(const ir::Node& node, const Choosing& choosing, NodeStrategy& strategy,
                     std::vector<mesh::Sharding>& results);

// All of it, by the rules; takes the result. Errors: as ChooseStrategies.
Result<Strategies> StrategiesByRules(Choosing& choosing);

// Whether it is a sum over the tensor group that is still to be made.
bool IsTensorSum(const mesh::Sharding& view);
// add, sub, sum.
bool IsAdditive(const ir::Node& node);

// The nodes whose whole operands should become summands, so that a node behind them adds two
// partial sums and one reduction less is needed. `strategies`: those of the rules without that.
std::set<size_t> AddsOfLaterSums(const ir::Graph& graph, const StageAssignment& stages,
                                 const Strategies& strategies);

}  // namespace meshwright::planner
