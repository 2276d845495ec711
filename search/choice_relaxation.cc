#include "search/choice_relaxation.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace meshwright::search {
namespace {

constexpr int kSweeps = 400;         // over all nodes and back
constexpr int kPriceSweeps = 5;      // between changes of prices
constexpr int kPatience = 40;        // sweeps without a better bound or answer
constexpr int kPricePatience = 300;  // the same where prices are to be found
constexpr int kStepPatience = 4;    // changes of prices without a better bound, before smaller ones
constexpr double kProgress = 1e-7;  // of the bound: less is none
constexpr double kRounding = 1e-9;  // of a cost: costs that differ by less are equal
constexpr double kBarred = 1e30;    // stands for kForbidden where costs are subtracted

double Bar(double cost_s) { return std::min(cost_s, kBarred); }

// An edge: its table, seen from both ends, and what the ends have put into it.
struct Link {
  int ends[2] = {0, 0};
  std::vector<double> table[2];  // [choices of that end, choices of the other]
  std::vector<double> moved[2];  // per choice of that end
};

class Relaxer {
 public:
  Relaxer(const ChoiceProblem& problem, const SolveOptions& options, const Clock& clock)
      : problem_(problem),
        options_(options),
        clock_(clock),
        end_ms_(clock.NowMs() + options.timeout_ms),
        prices_s_(problem.moments.size()),
        links_of_(problem.nodes.size()),
        moments_of_(problem.nodes.size()) {
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      std::vector<double>& own = own_s_.emplace_back();
      for (double cost_s : problem.nodes[i].cost_s) own.push_back(Bar(cost_s));
      kept_.emplace_back();
      for (size_t c = 0; c < own.size(); ++c) kept_.back().push_back(static_cast<int>(c));
    }
    for (const ChoiceEdge& edge : problem.edges) AddLink(edge);
    for (size_t m = 0; m < problem.moments.size(); ++m) {
      for (int node : problem.moments[m].nodes) moments_of_[Index(node)].push_back(m);
    }
  }

  ChoiceRelaxation Run() {
    if (!options_.start.empty()) Offer(options_.start);
    const int patience = prices_s_.empty() ? kPatience : kPricePatience;
    int stalled = 0;
    for (int sweep = 0; sweep < kSweeps && stalled < patience; ++sweep) {
      const double bound_s = bound_s_;
      const double best_s = best_ ? best_->cost_s : kForbidden;
      std::vector<int> choices = Sweep(true);
      Improve(choices);
      const std::vector<int> back = Sweep(false);
      SeeBound();
      if (bound_s_ >= kBarred / 2 || Closed() || clock_.NowMs() >= end_ms_) break;
      const bool better =
          bound_s_ > bound_s + kProgress * std::abs(bound_s) || (best_ && best_->cost_s < best_s);
      stalled = better ? 0 : stalled + 1;
      if (sweep % kPriceSweeps == kPriceSweeps - 1) {
        Improve(back);
        Prune();
        SetPrices(choices);
      }
    }
    Prune();
    ChoiceRelaxation relaxation;
    relaxation.bound_s = bound_s_ >= kBarred / 2 ? kForbidden : std::max(bound_s_, 0.0);
    if (best_) {
      relaxation.bound_s = std::min(relaxation.bound_s, best_->cost_s);
      best_->bound_s = relaxation.bound_s;
    }
    relaxation.best = std::move(best_);
    relaxation.kept = std::move(kept_);
    return relaxation;
  }

 private:
  static size_t Index(int i) { return static_cast<size_t>(i); }

  void AddLink(const ChoiceEdge& edge) {
    const size_t rows = own_s_[Index(edge.from)].size();
    const size_t columns = own_s_[Index(edge.to)].size();
    Link link{{edge.from, edge.to}, {{}, std::vector<double>(rows * columns)}, {}};
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) {
        const double cost_s = Bar(edge.cost_s[i * columns + j]);
        link.table[0].push_back(cost_s);
        link.table[1][j * rows + i] = cost_s;
      }
    }
    link.moved[0].resize(rows);
    link.moved[1].resize(columns);
    for (int end : {0, 1}) links_of_[Index(link.ends[end])].emplace_back(links_.size(), end);
    links_.push_back(std::move(link));
  }

  // ---- messages ----

  // Per kept choice of the end, the least that the edge costs.
  void Least(const Link& link, int end, std::vector<double>& least) const {
    const int other = link.ends[1 - end];
    const std::vector<int>& columns = kept_[Index(other)];
    const std::vector<double>& moved = link.moved[1 - end];
    const size_t width = moved.size();
    least.assign(link.moved[end].size(), 0);
    for (int c : kept_[Index(link.ends[end])]) {
      const double* row = &link.table[end][Index(c) * width];
      double best = 2 * kBarred;
      for (int j : columns) best = std::min(best, row[j] + moved[Index(j)]);
      least[Index(c)] = best + link.moved[end][Index(c)];
    }
  }

  // One pass over the nodes: each takes in what its edges cost at least and gives equal parts of
  // what it has to the edges ahead. Returns choices that follow each other greedily.
  std::vector<int> Sweep(bool forward) {
    const int count = static_cast<int>(own_s_.size());
    std::vector<int> choices(own_s_.size(), -1);
    std::vector<double> least;
    for (int step = 0; step < count; ++step) {
      const int node = forward ? step : count - 1 - step;
      std::vector<double>& own = own_s_[Index(node)];
      std::vector<double> score = own;
      size_t ahead = 0;
      for (const auto& [l, end] : links_of_[Index(node)]) {
        Link& link = links_[l];
        const int other = link.ends[1 - end];
        const bool later = forward ? other > node : other < node;
        ahead += later ? 1 : 0;
        Least(link, end, least);
        for (int c : kept_[Index(node)]) {
          const size_t i = Index(c);
          score[i] +=
              later
                  ? least[i]
                  : link.table[end][i * link.moved[1 - end].size() + Index(choices[Index(other)])] +
                        link.moved[end][i] + link.moved[1 - end][Index(choices[Index(other)])];
          own[i] += least[i];
          link.moved[end][i] -= least[i];
        }
      }
      choices[Index(node)] = Best(node, score);
      Give(node, forward, ahead);
    }
    return choices;
  }

  int Best(int node, const std::vector<double>& score) const {
    const std::vector<int>& kept = kept_[Index(node)];
    return *std::min_element(kept.begin(), kept.end(),
                             [&](int a, int b) { return score[Index(a)] < score[Index(b)]; });
  }

  void Give(int node, bool forward, size_t ahead) {
    if (ahead == 0) return;
    std::vector<double>& own = own_s_[Index(node)];
    const size_t behind = links_of_[Index(node)].size() - ahead;
    const double part = 1.0 / static_cast<double>(std::max(ahead, behind));
    const std::vector<double> whole = own;
    for (const auto& [l, end] : links_of_[Index(node)]) {
      Link& link = links_[l];
      const int other = link.ends[1 - end];
      if (forward ? other < node : other > node) continue;
      for (int c : kept_[Index(node)]) {
        link.moved[end][Index(c)] += part * whole[Index(c)];
        own[Index(c)] -= part * whole[Index(c)];
      }
    }
  }

  // The least of all nodes and edges as costs lie now.
  double Bound() const {
    double bound_s = 0;
    std::vector<double> least;
    for (size_t i = 0; i < own_s_.size(); ++i)
      bound_s += own_s_[i][Index(Best(static_cast<int>(i), own_s_[i]))];
    for (const Link& link : links_) {
      Least(link, 0, least);
      bound_s += least[Index(Best(link.ends[0], least))];
    }
    for (size_t m = 0; m < prices_s_.size(); ++m) {
      bound_s -= prices_s_[m] * static_cast<double>(problem_.moments[m].budget_bytes);
    }
    return bound_s;
  }

  void SeeBound() {
    now_s_ = Bound();
    bound_s_ = std::max(bound_s_, now_s_);
  }

  bool Closed() const {
    return best_ && bound_s_ >= best_->cost_s * (1 - options_.gap - kRounding);
  }

  // Choices that no answer below the best one takes.
  void Prune() {
    if (!best_) return;
    const double spare_s = best_->cost_s * (1 + kRounding) - Bound();
    for (size_t i = 0; i < kept_.size(); ++i) {
      const std::vector<double>& own = own_s_[i];
      const double least = own[Index(Best(static_cast<int>(i), own))];
      std::vector<int> left;
      for (int c : kept_[i]) {
        if (own[Index(c)] - least <= spare_s || c == best_->choices[i]) left.push_back(c);
      }
      kept_[i] = std::move(left);
    }
  }

  // ---- memory ----

  void SetPrices(const std::vector<int>& choices) {
    if (prices_s_.empty()) return;
    std::vector<double> over(prices_s_.size());
    double norm = 0;
    for (size_t m = 0; m < over.size(); ++m) {
      over[m] = static_cast<double>(BytesAt(m, choices) - problem_.moments[m].budget_bytes);
      if (over[m] > 0 || prices_s_[m] > 0) norm += over[m] * over[m];
    }
    if (norm == 0) return;
    const double above_s = best_ ? best_->cost_s : now_s_ * 1.1 + 1e-9;
    if (bound_s_ > price_bound_s_ + kProgress * std::abs(bound_s_)) {
      stuck_ = 0;
    } else if (++stuck_ % kStepPatience == 0) {
      step_ /= 2;
    }
    price_bound_s_ = bound_s_;
    const double length = step_ * std::max(above_s - now_s_, 1e-4 * std::abs(now_s_)) / norm;
    for (size_t m = 0; m < over.size(); ++m) {
      const double price = std::max(0.0, prices_s_[m] + length * over[m]);
      const double change = price - std::exchange(prices_s_[m], price);
      if (change == 0) continue;
      for (int node : problem_.moments[m].nodes) {
        const std::vector<int64_t>& memory = problem_.nodes[Index(node)].memory_bytes;
        for (size_t c = 0; c < memory.size(); ++c) {
          own_s_[Index(node)][c] += change * static_cast<double>(memory[c]);
        }
      }
    }
  }

  int64_t BytesAt(size_t moment, const std::vector<int>& choices) const {
    int64_t bytes = 0;
    for (int node : problem_.moments[moment].nodes) {
      bytes += problem_.nodes[Index(node)].memory_bytes[Index(choices[Index(node)])];
    }
    return bytes;
  }

  // ---- answers ----

  void Offer(const std::vector<int>& choices) {
    const ChoiceEvaluation evaluation = EvaluateChoices(problem_, choices);
    if (!evaluation.feasible() || (best_ && evaluation.cost_s >= best_->cost_s)) return;
    best_ = ChoiceAnswer{choices, evaluation.cost_s, std::clamp(bound_s_, 0.0, evaluation.cost_s)};
  }

  // What the node would cost with a choice, the others as they are.
  double Local(int node, int choice, const std::vector<int>& choices) const {
    double cost_s = Bar(problem_.nodes[Index(node)].cost_s[Index(choice)]);
    for (const auto& [l, end] : links_of_[Index(node)]) {
      const Link& link = links_[l];
      cost_s += link.table[end][Index(choice) * link.moved[1 - end].size() +
                                Index(choices[Index(link.ends[1 - end])])];
    }
    return cost_s;
  }

  // The most by which the choice would overfill a moment; below 0: room.
  int64_t Over(int node, int choice, const std::vector<int>& choices,
               const std::vector<int64_t>& bytes) const {
    const std::vector<int64_t>& memory = problem_.nodes[Index(node)].memory_bytes;
    const int64_t more = memory[Index(choice)] - memory[Index(choices[Index(node)])];
    int64_t over = std::numeric_limits<int64_t>::min();
    for (size_t m : moments_of_[Index(node)]) {
      over = std::max(over, bytes[m] + more - problem_.moments[m].budget_bytes);
    }
    return over;
  }

  // Makes greedy choices fit, then better one by one, and offers them.
  void Improve(std::vector<int> choices) {
    std::vector<int64_t> bytes;
    for (size_t m = 0; m < prices_s_.size(); ++m) bytes.push_back(BytesAt(m, choices));
    if (!Repair(choices, bytes)) return;
    bool moved = true;
    for (int round = 0; round < 8 && moved; ++round) {
      moved = false;
      for (int node = 0; node < static_cast<int>(choices.size()); ++node) {
        int& own = choices[Index(node)];
        double best_s = Local(node, own, choices);
        const int before = own;
        int best = own;
        for (int c : kept_[Index(node)]) {
          const double cost_s = Local(node, c, choices);
          if (cost_s >= best_s || Over(node, c, choices, bytes) > 0) continue;
          best_s = cost_s;
          best = c;
        }
        if (best == before) continue;
        Move(node, best, choices, bytes);
        moved = true;
      }
    }
    Offer(choices);
  }

  void Move(int node, int choice, std::vector<int>& choices, std::vector<int64_t>& bytes) const {
    const std::vector<int64_t>& memory = problem_.nodes[Index(node)].memory_bytes;
    for (size_t m : moments_of_[Index(node)]) {
      bytes[m] += memory[Index(choice)] - memory[Index(choices[Index(node)])];
    }
    choices[Index(node)] = choice;
  }

  // While a moment is overfull: the change that costs least per byte.
  bool Repair(std::vector<int>& choices, std::vector<int64_t>& bytes) const {
    for (size_t m = 0; m < bytes.size();) {
      if (bytes[m] <= problem_.moments[m].budget_bytes) {
        ++m;
        continue;
      }
      int best_node = -1;
      int best = 0;
      double best_rate = kBarred / 2;
      for (int node : problem_.moments[m].nodes) {
        const std::vector<int64_t>& memory = problem_.nodes[Index(node)].memory_bytes;
        const int own = choices[Index(node)];
        const double own_s = Local(node, own, choices);
        for (int c : kept_[Index(node)]) {
          const int64_t less = memory[Index(own)] - memory[Index(c)];
          if (less <= 0) continue;
          const double rate = (Local(node, c, choices) - own_s) / static_cast<double>(less);
          if (rate >= best_rate) continue;
          best_rate = rate;
          best_node = node;
          best = c;
        }
      }
      if (best_node < 0) return false;
      Move(best_node, best, choices, bytes);
    }
    return true;
  }

  const ChoiceProblem& problem_;
  const SolveOptions& options_;
  const Clock& clock_;
  const int64_t end_ms_;
  std::vector<double> prices_s_;  // per byte of a moment
  std::vector<Link> links_;
  std::vector<std::vector<std::pair<size_t, int>>> links_of_;  // per node: link and end
  std::vector<std::vector<size_t>> moments_of_;
  std::vector<std::vector<double>> own_s_;  // what lies with the node now, prices included
  std::vector<std::vector<int>> kept_;
  std::optional<ChoiceAnswer> best_;
  double bound_s_ = -kBarred;        // the best one
  double now_s_ = 0;                 // as costs lie now
  double step_ = 1;                  // of prices
  double price_bound_s_ = -kBarred;  // when they changed last
  int stuck_ = 0;                    // changes since it rose
};

}  // namespace

ChoiceRelaxation RelaxChoices(const ChoiceProblem& problem, const SolveOptions& options,
                              const Clock& clock) {
  return Relaxer(problem, options, clock).Run();
}

ChoiceReduction KeepChoices(const ChoiceProblem& problem, std::vector<std::vector<int>> kept) {
  ChoiceReduction reduction;
  for (size_t i = 0; i < kept.size(); ++i) {
    const ChoiceNode& full = problem.nodes[i];
    ChoiceNode node{full.name, {}, {}};
    for (int c : kept[i]) {
      node.cost_s.push_back(full.cost_s[static_cast<size_t>(c)]);
      node.memory_bytes.push_back(full.memory_bytes[static_cast<size_t>(c)]);
    }
    reduction.nodes.push_back(static_cast<int>(i));
    reduction.problem.nodes.push_back(std::move(node));
  }
  for (const ChoiceEdge& full : problem.edges) {
    ChoiceEdge edge{full.from, full.to, {}};
    const auto columns = static_cast<size_t>(problem.choices_of(full.to));
    for (int a : kept[static_cast<size_t>(full.from)]) {
      for (int b : kept[static_cast<size_t>(full.to)]) {
        edge.cost_s.push_back(
            full.cost_s[static_cast<size_t>(a) * columns + static_cast<size_t>(b)]);
      }
    }
    reduction.problem.edges.push_back(std::move(edge));
  }
  reduction.problem.moments = problem.moments;
  reduction.kept = std::move(kept);
  return reduction;
}

}  // namespace meshwright::search
