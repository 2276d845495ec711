#include <coin/Cbc_C_Interface.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "search/choice_solver.h"

namespace meshwright::search {
namespace {

// CBC compares with absolute tolerances (1e-7 and up): costs and bytes are stated in units that
// make the numbers that matter about this large.
constexpr double kCostUnits = 1e4;
constexpr double kByteUnits = 1e3;
constexpr int kRepairs = 4;  // solves again when rounding let a moment be over its budget

// CBC keeps state of the process, and takes SIGINT for itself while it solves.
class CbcTurn {
 public:
  CbcTurn() : lock_(TheMutex()) { sigaction(SIGINT, nullptr, &interrupt_); }
  ~CbcTurn() { sigaction(SIGINT, &interrupt_, nullptr); }
  CbcTurn(const CbcTurn&) = delete;
  CbcTurn& operator=(const CbcTurn&) = delete;

 private:
  static Mutex& TheMutex() {
    static Mutex mutex;
    return mutex;
  }
  const MutexLock lock_;
  struct sigaction interrupt_ = {};
};

// The program of one solve.
class LinearProgram {
 public:
  // Choices and pairs that alone cost more than `most_s` are left out. `margin_bytes` per moment is
  // kept free.
  LinearProgram(const ChoiceProblem& problem, double most_s,
                const std::vector<int64_t>& margin_bytes)
      : problem_(problem), most_s_(most_s), model_(Cbc_newModel()) {
    Cbc_setLogLevel(model_, 0);
    units_per_s_ = kCostUnits / Largest();
    for (size_t i = 0; i < problem.nodes.size(); ++i) AddNode(problem.nodes[i]);
    for (const ChoiceEdge& edge : problem.edges) AddEdge(edge);
    for (size_t m = 0; m < problem.moments.size(); ++m) {
      AddMoment(problem.moments[m], margin_bytes[m]);
    }
  }
  ~LinearProgram() { Cbc_deleteModel(model_); }
  LinearProgram(const LinearProgram&) = delete;
  LinearProgram& operator=(const LinearProgram&) = delete;

  void StartFrom(const std::vector<int>& choices) {
    std::vector<int> columns;
    for (size_t i = 0; i < choices.size(); ++i) {
      columns.push_back(columns_[i][static_cast<size_t>(choices[i])]);
    }
    if (std::find(columns.begin(), columns.end(), kNone) != columns.end()) return;
    const std::vector<double> ones(columns.size(), 1);
    Cbc_setMIPStartI(model_, static_cast<int>(columns.size()), columns.data(), ones.data());
  }

  struct Outcome {
    std::vector<int> choices;  // empty: none found
    double bound_s = 0;
    bool complete = false;  // the gap is closed, or there is nothing
  };
  Outcome Solve(double timeout_s, double gap) {
    Set("log", "0");
    Set("timeMode", "elapsed");
    Set("sec", fmt::format("{}", timeout_s));
    Set("ratioGap", fmt::format("{}", gap));
    Cbc_solve(model_);
    Outcome outcome;
    const bool optimal = Cbc_isProvenOptimal(model_) != 0;
    outcome.complete = optimal || Cbc_isProvenInfeasible(model_) != 0;
    outcome.bound_s = std::max(0.0, Cbc_getBestPossibleObjValue(model_) / units_per_s_);
    const double* solution = Cbc_bestSolution(model_);
    if (!solution) return outcome;
    if (optimal) {
      outcome.bound_s =
          std::max(outcome.bound_s, Cbc_getObjValue(model_) / units_per_s_ * (1 - gap));
    }
    for (const std::vector<int>& columns : columns_) {
      outcome.choices.push_back(Chosen(columns, solution));
    }
    return outcome;
  }

 private:
  static constexpr int kNone = -1;

  void Set(const char* name, const std::string& value) {
    Cbc_setParameter(model_, name, value.c_str());
  }

  bool Kept(double cost_s) const { return cost_s < kForbidden && cost_s <= most_s_; }

  // The cost that counts as kCostUnits.
  double Largest() const {
    if (most_s_ < kForbidden && most_s_ > 0) return most_s_;
    double largest_s = 0;
    const auto see = [&](const std::vector<double>& costs) {
      for (double cost_s : costs) {
        if (Kept(cost_s)) largest_s = std::max(largest_s, cost_s);
      }
    };
    for (const ChoiceNode& node : problem_.nodes) see(node.cost_s);
    for (const ChoiceEdge& edge : problem_.edges) see(edge.cost_s);
    return largest_s > 0 ? largest_s : 1;
  }

  // A variable in [0, 1].
  int AddColumn(double cost_s, bool integer) {
    const std::string name = fmt::format("c{}", column_count_);
    Cbc_addCol(model_, name.c_str(), 0, 1, cost_s * units_per_s_, integer ? 1 : 0, 0, nullptr,
               nullptr);
    return column_count_++;
  }

  void AddRow(const std::vector<int>& columns, const std::vector<double>& factors, char sense,
              double right) {
    const std::string name = fmt::format("r{}", row_count_++);
    Cbc_addRow(model_, name.c_str(), static_cast<int>(columns.size()), columns.data(),
               factors.data(), sense, right);
  }

  void AddNode(const ChoiceNode& node) {
    std::vector<int>& columns = columns_.emplace_back();
    std::vector<int> kept;
    for (double cost_s : node.cost_s) {
      columns.push_back(Kept(cost_s) ? AddColumn(cost_s, true) : kNone);
      if (columns.back() != kNone) kept.push_back(columns.back());
    }
    AddRow(kept, std::vector<double>(kept.size(), 1), 'E', 1);
  }

  void AddEdge(const ChoiceEdge& edge) {
    if (std::all_of(edge.cost_s.begin(), edge.cost_s.end(), [](double c) { return c == 0; }))
      return;
    const std::vector<int>& from = columns_[static_cast<size_t>(edge.from)];
    const std::vector<int>& to = columns_[static_cast<size_t>(edge.to)];
    // Per choice of either end: the pairs that have it.
    std::vector<std::vector<int>> from_pairs(from.size());
    std::vector<std::vector<int>> to_pairs(to.size());
    for (size_t a = 0; a < from.size(); ++a) {
      for (size_t b = 0; b < to.size(); ++b) {
        const double cost_s = edge.cost_s[a * to.size() + b];
        if (from[a] == kNone || to[b] == kNone || !Kept(cost_s)) continue;
        const int column = AddColumn(cost_s, false);
        from_pairs[a].push_back(column);
        to_pairs[b].push_back(column);
      }
    }
    for (size_t a = 0; a < from.size(); ++a) AddMarginal(from[a], std::move(from_pairs[a]));
    for (size_t b = 0; b < to.size(); ++b) AddMarginal(to[b], std::move(to_pairs[b]));
  }

  void AddMarginal(int choice, std::vector<int> pairs) {
    if (choice == kNone) return;
    std::vector<double> factors(pairs.size(), 1);
    pairs.push_back(choice);
    factors.push_back(-1);
    AddRow(pairs, factors, 'E', 0);
  }

  // What every choice of a node takes counts once, so that factors say only what differs.
  void AddMoment(const ChoiceMoment& moment, int64_t margin_bytes) {
    std::vector<int> columns;
    std::vector<double> bytes;
    double left = static_cast<double>(moment.budget_bytes - margin_bytes);
    double most = 0;
    for (int node : moment.nodes) {
      const auto i = static_cast<size_t>(node);
      const std::vector<int64_t>& memory = problem_.nodes[i].memory_bytes;
      const auto [least, largest] = std::minmax_element(memory.begin(), memory.end());
      left -= static_cast<double>(*least);
      most += static_cast<double>(*largest - *least);
      for (size_t c = 0; c < memory.size(); ++c) {
        if (columns_[i][c] == kNone || memory[c] == *least) continue;
        columns.push_back(columns_[i][c]);
        bytes.push_back(static_cast<double>(memory[c] - *least));
      }
    }
    if (most <= left) return;
    const double unit = kByteUnits / std::max(1.0, std::abs(left));
    for (double& factor : bytes) factor *= unit;
    AddRow(columns, bytes, 'L', left * unit);
  }

  static int Chosen(const std::vector<int>& columns, const double* solution) {
    int best = 0;
    double most = -1;
    for (size_t c = 0; c < columns.size(); ++c) {
      const double value = columns[c] == kNone ? -1 : solution[columns[c]];
      if (value > most) best = static_cast<int>(c);
      most = std::max(most, value);
    }
    return best;
  }

  const ChoiceProblem& problem_;
  const double most_s_;
  Cbc_Model* const model_;
  double units_per_s_ = 1;
  int column_count_ = 0;
  int row_count_ = 0;
  std::vector<std::vector<int>> columns_;  // [node][choice]; kNone: left out
};

class CbcSolver final : public ChoiceSolver {
 public:
  explicit CbcSolver(const Clock& clock) : clock_(clock) {}

  Result<ChoiceAnswer> Solve(const ChoiceProblem& problem,
                             const SolveOptions& options) const override {
    const int64_t end_ms = clock_.NowMs() + options.timeout_ms;
    MW_TRY(CheckChoiceProblem(problem));
    MW_TRY(CheckStart(problem, options.start));
    MW_TRY(CheckFits(problem));
    if (problem.nodes.empty()) return ChoiceAnswer{};
    std::optional<ChoiceAnswer> best = StartAnswer(problem, options.start);
    const CbcTurn turn;
    std::vector<int64_t> margin_bytes(problem.moments.size());
    std::optional<double> bound_s;
    bool complete = false;
    for (int i = 0; i < kRepairs; ++i) {
      const double left_s = static_cast<double>(end_ms - clock_.NowMs()) * 1e-3;
      if (left_s <= 0) break;
      LinearProgram program(problem, best ? best->cost_s : kForbidden, margin_bytes);
      if (best) program.StartFrom(best->choices);
      const LinearProgram::Outcome outcome = program.Solve(left_s, options.gap);
      // A margin takes answers away: only the first bound holds for all.
      if (!bound_s) bound_s = outcome.bound_s;
      complete = outcome.complete;
      if (outcome.choices.empty()) break;
      const ChoiceEvaluation evaluation = EvaluateChoices(problem, outcome.choices);
      if (evaluation.cost_s == kForbidden) {
        return Fail(Internal("CBC's answer takes choices that are not allowed together"));
      }
      if (evaluation.feasible()) {
        if (!best || evaluation.cost_s < best->cost_s)
          best = {outcome.choices, evaluation.cost_s, 0};
        break;
      }
      MW_TRY(Widen(problem, evaluation, margin_bytes));
    }
    if (!best) return Fail(Nothing(complete, options.timeout_ms));
    best->bound_s = std::min(bound_s.value_or(0), best->cost_s);
    return *std::move(best);
  }

 private:
  static std::optional<ChoiceAnswer> StartAnswer(const ChoiceProblem& problem,
                                                 const std::vector<int>& start) {
    if (start.empty()) return std::nullopt;
    const ChoiceEvaluation evaluation = EvaluateChoices(problem, start);
    if (!evaluation.feasible()) return std::nullopt;
    return ChoiceAnswer{start, evaluation.cost_s, 0};
  }

  // What rounding may hide is a small part of the budget.
  static Status Widen(const ChoiceProblem& problem, const ChoiceEvaluation& evaluation,
                      std::vector<int64_t>& margin_bytes) {
    const auto m = static_cast<size_t>(evaluation.worst_moment);
    const auto budget = static_cast<double>(problem.moments[m].budget_bytes);
    if (static_cast<double>(evaluation.over_bytes) > 1e-3 * budget + 1) {
      return Internal(fmt::format("CBC's answer is over the budget of moment {} by {} bytes", m,
                                  evaluation.over_bytes));
    }
    margin_bytes[m] += evaluation.over_bytes;
    return OkStatus();
  }

  // Nodes without an allowed choice, and moments that the least of all choices overfills.
  static Status CheckFits(const ChoiceProblem& problem) {
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const std::vector<double>& cost_s = problem.nodes[i].cost_s;
      if (std::any_of(cost_s.begin(), cost_s.end(), [](double c) { return c < kForbidden; }))
        continue;
      return ResourceExhausted(fmt::format("choice node {} (\"{}\") has no choice that is allowed",
                                           i, problem.nodes[i].name));
    }
    for (size_t m = 0; m < problem.moments.size(); ++m) {
      int64_t bytes = 0;
      for (int node : problem.moments[m].nodes) {
        const auto& memory = problem.nodes[static_cast<size_t>(node)].memory_bytes;
        bytes += *std::min_element(memory.begin(), memory.end());
      }
      const int64_t over = bytes - problem.moments[m].budget_bytes;
      if (over <= 0) continue;
      return ResourceExhausted(fmt::format(
          "no choices fit; the least of all are over the budget of moment {} by {} bytes", m,
          over));
    }
    return OkStatus();
  }

  static Status Nothing(bool complete, int64_t timeout_ms) {
    if (complete) return ResourceExhausted("no choices that are allowed together fit");
    return DeadlineExceeded(fmt::format("CBC found no choices that fit in {} ms", timeout_ms));
  }

  const Clock& clock_;
};

}  // namespace

std::unique_ptr<const ChoiceSolver> MakeCbcSolver(const Clock& clock) {
  return std::make_unique<CbcSolver>(clock);
}

}  // namespace meshwright::search
