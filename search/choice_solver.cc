#include "search/choice_solver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

#include "search/choice_problem.h"

namespace meshwright::search {
namespace {

// How long messages are passed: sweeps over all nodes and back.
struct Patience {
  int sweeps = 0;
  int stalled = 0;         // sweeps without a better bound or answer
  int stalled_priced = 0;  // the same where prices are to be found
};
constexpr Patience kOfWhole = {400, 40, 300};
constexpr Patience kOfBranch = {60, 6, 25};

constexpr int kPriceSweeps = 5;     // between changes of prices
constexpr int kStepPatience = 4;    // changes of prices without a better bound, before smaller ones
constexpr double kProgress = 1e-7;  // of the bound: less is none
constexpr double kRounding = 1e-9;  // of a cost: costs that differ by less are equal
constexpr double kBarred = 1e30;    // stands for kForbidden where costs are subtracted

constexpr int64_t kMostBranches = 20'000;
constexpr int kMostDepth = 200;  // of branches, each of which has costs of its own

double Bar(double cost_s) { return std::min(cost_s, kBarred); }

size_t Index(int i) { return static_cast<size_t>(i); }

using Choices = std::vector<std::vector<int>>;  // per node, ascending: what it may take

// An edge: its table, seen from both ends.
struct Link {
  int ends[2] = {0, 0};
  std::vector<double> table[2];  // [choices of that end, choices of the other]
};

// The problem by node, and the best answer that was met.
class Answers {
 public:
  Answers(const ChoiceProblem& problem, double known_s)
      : problem_(problem),
        known_s_(known_s),
        links_of_(problem.nodes.size()),
        moments_of_(problem.nodes.size()) {
    for (const ChoiceEdge& edge : problem.edges) AddLink(edge);
    for (size_t m = 0; m < problem.moments.size(); ++m) {
      for (int node : problem.moments[m].nodes) moments_of_[Index(node)].push_back(m);
    }
  }

  const ChoiceProblem& problem() const { return problem_; }
  const std::vector<Link>& links() const { return links_; }
  // Of a node: link and end.
  const std::vector<std::pair<size_t, int>>& LinksOf(int node) const {
    return links_of_[Index(node)];
  }
  // Moments in which its memory counts.
  const std::vector<size_t>& MomentsOf(int node) const { return moments_of_[Index(node)]; }
  const std::optional<ChoiceAnswer>& best() const { return best_; }
  // No answer is looked for that costs as much.
  double below_s() const { return best_ ? best_->cost_s : known_s_; }

  int64_t BytesAt(size_t moment, const std::vector<int>& choices) const {
    int64_t bytes = 0;
    for (int node : problem_.moments[moment].nodes) {
      bytes += problem_.nodes[Index(node)].memory_bytes[Index(choices[Index(node)])];
    }
    return bytes;
  }

  // Makes choices fit, then better one by one, and keeps them where they are the best.
  void Improve(std::vector<int> choices, const Choices& kept) {
    std::vector<int64_t> bytes;
    for (size_t m = 0; m < problem_.moments.size(); ++m) bytes.push_back(BytesAt(m, choices));
    if (!Repair(choices, bytes, kept)) return;
    bool moved = true;
    for (int round = 0; round < 8 && moved; ++round) {
      moved = false;
      for (int node = 0; node < static_cast<int>(choices.size()); ++node) {
        const int own = choices[Index(node)];
        double best_s = Local(node, own, choices);
        int best = own;
        for (int c : kept[Index(node)]) {
          const double cost_s = Local(node, c, choices);
          if (cost_s >= best_s || Over(node, c, choices, bytes) > 0) continue;
          best_s = cost_s;
          best = c;
        }
        if (best == own) continue;
        Move(node, best, choices, bytes);
        moved = true;
      }
    }
    const ChoiceEvaluation evaluation = EvaluateChoices(problem_, choices);
    if (!evaluation.feasible() || evaluation.cost_s >= below_s()) return;
    best_.emplace();
    best_->choices = std::move(choices);
    best_->cost_s = evaluation.cost_s;
  }

 private:
  void AddLink(const ChoiceEdge& edge) {
    const size_t rows = Index(problem_.choices_of(edge.from));
    const size_t columns = Index(problem_.choices_of(edge.to));
    Link link{{edge.from, edge.to}, {{}, std::vector<double>(rows * columns)}};
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) {
        const double cost_s = Bar(edge.cost_s[i * columns + j]);
        link.table[0].push_back(cost_s);
        link.table[1][j * rows + i] = cost_s;
      }
    }
    for (int end : {0, 1}) links_of_[Index(link.ends[end])].emplace_back(links_.size(), end);
    links_.push_back(std::move(link));
  }

  // What the node would cost with a choice, the others as they are.
  double Local(int node, int choice, const std::vector<int>& choices) const {
    double cost_s = Bar(problem_.nodes[Index(node)].cost_s[Index(choice)]);
    for (const auto& [l, end] : LinksOf(node)) {
      const int other = links_[l].ends[1 - end];
      const auto width = Index(problem_.choices_of(other));
      cost_s += links_[l].table[end][Index(choice) * width + Index(choices[Index(other)])];
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

  void Move(int node, int choice, std::vector<int>& choices, std::vector<int64_t>& bytes) const {
    const std::vector<int64_t>& memory = problem_.nodes[Index(node)].memory_bytes;
    for (size_t m : moments_of_[Index(node)]) {
      bytes[m] += memory[Index(choice)] - memory[Index(choices[Index(node)])];
    }
    choices[Index(node)] = choice;
  }

  // While a moment is overfull: the change that costs least per byte.
  bool Repair(std::vector<int>& choices, std::vector<int64_t>& bytes, const Choices& kept) const {
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
        for (int c : kept[Index(node)]) {
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
  const double known_s_;  // of an answer from elsewhere; kForbidden: none
  std::vector<Link> links_;
  std::vector<std::vector<std::pair<size_t, int>>> links_of_;
  std::vector<std::vector<size_t>> moments_of_;
  std::optional<ChoiceAnswer> best_;
};

// How costs lie between nodes, edges and prices, and which choices are left: a branch of the
// search. A copy goes on from there.
class Messages {
 public:
  explicit Messages(const ChoiceProblem& problem) : prices_s_(problem.moments.size()) {
    for (const ChoiceNode& node : problem.nodes) {
      std::vector<double>& own = own_s_.emplace_back();
      for (double cost_s : node.cost_s) own.push_back(Bar(cost_s));
      kept_.emplace_back();
      for (size_t c = 0; c < own.size(); ++c) kept_.back().push_back(static_cast<int>(c));
    }
    for (const ChoiceEdge& edge : problem.edges) {
      moved_.push_back({std::vector<double>(Index(problem.choices_of(edge.from))),
                        std::vector<double>(Index(problem.choices_of(edge.to)))});
    }
  }

  double bound_s() const { return bound_s_; }
  const Choices& kept() const { return kept_; }

  // Offers what it meets to `answers`. Ends early where `over`() says so.
  template <typename Over>
  void Pass(const Patience& patience, Answers& answers, const Over& over) {
    const int most = prices_s_.empty() ? patience.stalled : patience.stalled_priced;
    step_ = 1;
    stuck_ = 0;
    int stalled = 0;
    for (int sweep = 0; sweep < patience.sweeps && stalled < most; ++sweep) {
      const double bound_s = bound_s_;
      const double best_s = answers.below_s();
      const std::vector<int> choices = Sweep(answers, true);
      answers.Improve(choices, kept_);
      const std::vector<int> back = Sweep(answers, false);
      now_s_ = Bound(answers);
      bound_s_ = std::max(bound_s_, now_s_);
      if (bound_s_ >= kBarred / 2 || over()) break;
      const bool better =
          bound_s_ > bound_s + kProgress * std::abs(bound_s) || answers.below_s() < best_s;
      stalled = better ? 0 : stalled + 1;
      if (sweep % kPriceSweeps == kPriceSweeps - 1) {
        answers.Improve(back, kept_);
        Prune(answers);
        SetPrices(answers, choices);
      }
    }
    Prune(answers);
  }

  void Take(int node, int choice) { kept_[Index(node)] = {choice}; }
  void Drop(int node, int choice) { std::erase(kept_[Index(node)], choice); }

  // The node to decide next, and its likely choice: the one whose choices differ most in what their
  // memory is worth, else the one that is decided least. None: all are decided.
  std::optional<std::pair<int, int>> Doubtful(const Answers& answers) const {
    std::optional<std::pair<int, int>> doubtful;
    std::pair<double, double> most = {-1, 0};
    for (int node = 0; node < static_cast<int>(kept_.size()); ++node) {
      if (kept_[Index(node)].size() < 2) continue;
      const std::vector<double>& own = own_s_[Index(node)];
      const std::vector<int64_t>& memory = answers.problem().nodes[Index(node)].memory_bytes;
      const int best = Best(node, own);
      double next_s = std::numeric_limits<double>::infinity();
      int64_t bytes = 0;
      for (int c : kept_[Index(node)]) {
        if (c == best) continue;
        next_s = std::min(next_s, own[Index(c)] - own[Index(best)]);
        bytes = std::max(bytes, std::abs(memory[Index(c)] - memory[Index(best)]));
      }
      double price_s = 0;
      for (size_t m : answers.MomentsOf(node)) price_s += prices_s_[m];
      const std::pair<double, double> doubt = {price_s * static_cast<double>(bytes), -next_s};
      if (doubtful && doubt <= most) continue;
      most = doubt;
      doubtful = {node, best};
    }
    return doubtful;
  }

  // Leaves out what overfills a moment whatever the others choose; false: there is no way to fit.
  bool Fit(const ChoiceProblem& problem) {
    for (const ChoiceMoment& moment : problem.moments) {
      int64_t room = moment.budget_bytes;
      for (int node : moment.nodes) room -= LeastBytes(problem, node);
      if (room < 0) return false;
      for (int node : moment.nodes) {
        const std::vector<int64_t>& memory = problem.nodes[Index(node)].memory_bytes;
        const int64_t least = LeastBytes(problem, node);
        std::erase_if(kept_[Index(node)], [&](int c) { return memory[Index(c)] - least > room; });
      }
    }
    return true;
  }

 private:
  int64_t LeastBytes(const ChoiceProblem& problem, int node) const {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int c : kept_[Index(node)]) {
      least = std::min(least, problem.nodes[Index(node)].memory_bytes[Index(c)]);
    }
    return least;
  }

  int Best(int node, const std::vector<double>& score) const {
    const std::vector<int>& kept = kept_[Index(node)];
    return *std::min_element(kept.begin(), kept.end(),
                             [&](int a, int b) { return score[Index(a)] < score[Index(b)]; });
  }

  // Per kept choice of the end, the least that the edge costs.
  void Least(const Link& link, size_t l, int end, std::vector<double>& least) const {
    const std::vector<int>& columns = kept_[Index(link.ends[1 - end])];
    const std::vector<double>& moved = moved_[l][Index(1 - end)];
    least.assign(moved_[l][Index(end)].size(), 0);
    for (int c : kept_[Index(link.ends[end])]) {
      const double* row = &link.table[end][Index(c) * moved.size()];
      double best = 2 * kBarred;
      for (int j : columns) best = std::min(best, row[j] + moved[Index(j)]);
      least[Index(c)] = best + moved_[l][Index(end)][Index(c)];
    }
  }

  // One pass over the nodes: each takes in what its edges cost at least and gives equal parts of
  // what it has to the edges ahead. Returns choices that follow each other greedily.
  std::vector<int> Sweep(const Answers& answers, bool forward) {
    const int count = static_cast<int>(own_s_.size());
    std::vector<int> choices(own_s_.size(), -1);
    std::vector<double> least;
    for (int step = 0; step < count; ++step) {
      const int node = forward ? step : count - 1 - step;
      std::vector<double>& own = own_s_[Index(node)];
      std::vector<double> score = own;
      size_t ahead = 0;
      for (const auto& [l, end] : answers.LinksOf(node)) {
        const Link& link = answers.links()[l];
        const int other = link.ends[1 - end];
        const bool later = forward ? other > node : other < node;
        ahead += later ? 1 : 0;
        Least(link, l, end, least);
        std::vector<double>& moved = moved_[l][Index(end)];
        const std::vector<double>& others = moved_[l][Index(1 - end)];
        for (int c : kept_[Index(node)]) {
          const size_t i = Index(c);
          if (later) {
            score[i] += least[i];
          } else {
            const size_t j = Index(choices[Index(other)]);
            score[i] += link.table[end][i * others.size() + j] + moved[i] + others[j];
          }
          own[i] += least[i];
          moved[i] -= least[i];
        }
      }
      choices[Index(node)] = Best(node, score);
      Give(answers, node, forward, ahead);
    }
    return choices;
  }

  void Give(const Answers& answers, int node, bool forward, size_t ahead) {
    if (ahead == 0) return;
    std::vector<double>& own = own_s_[Index(node)];
    const size_t behind = answers.LinksOf(node).size() - ahead;
    const double part = 1.0 / static_cast<double>(std::max(ahead, behind));
    const std::vector<double> whole = own;
    for (const auto& [l, end] : answers.LinksOf(node)) {
      const int other = answers.links()[l].ends[1 - end];
      if (forward ? other < node : other > node) continue;
      for (int c : kept_[Index(node)]) {
        moved_[l][Index(end)][Index(c)] += part * whole[Index(c)];
        own[Index(c)] -= part * whole[Index(c)];
      }
    }
  }

  // The least of all nodes and edges as costs lie now.
  double Bound(const Answers& answers) const {
    double bound_s = 0;
    std::vector<double> least;
    for (size_t i = 0; i < own_s_.size(); ++i)
      bound_s += own_s_[i][Index(Best(static_cast<int>(i), own_s_[i]))];
    for (size_t l = 0; l < moved_.size(); ++l) {
      const Link& link = answers.links()[l];
      Least(link, l, 0, least);
      bound_s += least[Index(Best(link.ends[0], least))];
    }
    for (size_t m = 0; m < prices_s_.size(); ++m) {
      bound_s -= prices_s_[m] * static_cast<double>(answers.problem().moments[m].budget_bytes);
    }
    return bound_s;
  }

  // Choices that no answer below the best one takes. The likely one stays, so that each node has
  // one.
  void Prune(const Answers& answers) {
    if (answers.below_s() == kForbidden) return;
    const double spare_s = answers.below_s() * (1 + kRounding) - Bound(answers);
    for (size_t i = 0; i < kept_.size(); ++i) {
      const std::vector<double>& own = own_s_[i];
      const int best = Best(static_cast<int>(i), own);
      std::erase_if(kept_[i],
                    [&](int c) { return c != best && own[Index(c)] - own[Index(best)] > spare_s; });
    }
  }

  void SetPrices(const Answers& answers, const std::vector<int>& choices) {
    if (prices_s_.empty()) return;
    const ChoiceProblem& problem = answers.problem();
    std::vector<double> over(prices_s_.size());
    double norm = 0;
    for (size_t m = 0; m < over.size(); ++m) {
      over[m] = static_cast<double>(answers.BytesAt(m, choices) - problem.moments[m].budget_bytes);
      if (over[m] > 0 || prices_s_[m] > 0) norm += over[m] * over[m];
    }
    if (norm == 0) return;
    const double known_s = answers.below_s();
    const double above_s = known_s < kForbidden ? known_s : now_s_ * 1.1 + 1e-9;
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
      for (int node : problem.moments[m].nodes) {
        const std::vector<int64_t>& memory = problem.nodes[Index(node)].memory_bytes;
        for (size_t c = 0; c < memory.size(); ++c) {
          own_s_[Index(node)][c] += change * static_cast<double>(memory[c]);
        }
      }
    }
  }

  std::vector<std::array<std::vector<double>, 2>> moved_;  // per link and end: by its choices
  std::vector<std::vector<double>> own_s_;  // what lies with the node now, prices included
  Choices kept_;
  std::vector<double> prices_s_;     // per byte of a moment
  double bound_s_ = -kBarred;        // the best one
  double now_s_ = 0;                 // as costs lie now
  double step_ = 1;                  // of prices
  double price_bound_s_ = -kBarred;  // when they changed last
  int stuck_ = 0;                    // changes since it rose
};

// Of one problem: messages, then branches one after the other, the likely one first.
class Brancher {
 public:
  // `known_s`: of an answer that is known; none that costs as much is looked for.
  Brancher(const ChoiceProblem& problem, double known_s, const SolveOptions& options,
           const Deadline& deadline)
      : options_(options), deadline_(deadline), answers_(problem, known_s), whole_(problem) {}

  // True: there is nothing left to decide.
  bool PassMessages() {
    if (!whole_.Fit(answers_.problem())) {
      bound_s_ = kForbidden;
      return true;
    }
    whole_.Pass(kOfWhole, answers_, [&] { return IsClosed(whole_) || deadline_.expired(); });
    bound_s_ = whole_.bound_s() >= kBarred / 2 ? kForbidden : std::max(whole_.bound_s(), 0.0);
    return bound_s_ == kForbidden || IsClosed(whole_);
  }
  void Branch() { bound_s_ = std::max(bound_s_, Explore(whole_, 0)); }

  const Choices& kept() const { return whole_.kept(); }
  const std::optional<ChoiceAnswer>& best() const { return answers_.best(); }
  double bound_s() const { return bound_s_; }
  int64_t branches() const { return branches_; }
  bool complete() const { return complete_; }

 private:
  // Returns what no answer of the branch is below.
  double Explore(Messages branch, int depth) {
    double taken_s = kForbidden;  // of what was taken before, and is left out now
    for (;; ++branches_) {
      if (!branch.Fit(answers_.problem())) return taken_s;
      branch.Pass(kOfBranch, answers_, [&] { return IsClosed(branch) || deadline_.expired(); });
      if (branch.bound_s() >= kBarred / 2) return taken_s;
      const double bound_s = std::min(taken_s, branch.bound_s());
      if (IsClosed(branch)) return bound_s;
      const auto doubtful = branch.Doubtful(answers_);
      if (!doubtful) return std::min(taken_s, CostOfDecided(branch));
      if (depth == kMostDepth || branches_ >= kMostBranches || deadline_.expired()) {
        complete_ = false;
        return bound_s;
      }
      Messages taken = branch;
      taken.Take(doubtful->first, doubtful->second);
      ++branches_;
      taken_s = std::min(taken_s, Explore(std::move(taken), depth + 1));
      branch.Drop(doubtful->first, doubtful->second);
    }
  }

  double CostOfDecided(const Messages& branch) const {
    std::vector<int> choices;
    for (const std::vector<int>& kept : branch.kept()) choices.push_back(kept.front());
    const ChoiceEvaluation evaluation = EvaluateChoices(answers_.problem(), choices);
    return evaluation.feasible() ? evaluation.cost_s : kForbidden;
  }

  bool IsClosed(const Messages& branch) const {
    const double below_s = answers_.below_s();
    return below_s < kForbidden && branch.bound_s() >= below_s * (1 - options_.gap - kRounding);
  }

  const SolveOptions& options_;
  const Deadline& deadline_;
  Answers answers_;
  Messages whole_;
  double bound_s_ = -kBarred;
  int64_t branches_ = 0;
  bool complete_ = true;  // what is not the best answer was excluded
};

// Nodes without an allowed choice, and moments that the least of all choices overfills.
Status CheckFits(const ChoiceProblem& problem) {
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const std::vector<double>& cost_s = problem.nodes[i].cost_s;
    if (std::any_of(cost_s.begin(), cost_s.end(), [](double c) { return c < kForbidden; }))
      continue;
    return ResourceExhausted(fmt::format("choice node {} (\"{}\") has no choice that is allowed", i,
                                         problem.nodes[i].name));
  }
  for (size_t m = 0; m < problem.moments.size(); ++m) {
    int64_t bytes = 0;
    for (int node : problem.moments[m].nodes) {
      const auto& memory = problem.nodes[Index(node)].memory_bytes;
      bytes += *std::min_element(memory.begin(), memory.end());
    }
    const int64_t over = bytes - problem.moments[m].budget_bytes;
    if (over <= 0) continue;
    return ResourceExhausted(fmt::format(
        "no choices fit; the least of all are over the budget of moment {} by {} bytes", m, over));
  }
  return OkStatus();
}

}  // namespace

Result<ChoiceAnswer> SolveChoices(const ChoiceProblem& problem, const SolveOptions& options,
                                  const Clock& clock) {
  MW_TRY(CheckChoiceProblem(problem));
  MW_TRY(CheckFits(problem));
  const Deadline deadline = Deadline::After(options.timeout_ms, clock);
  const ChoiceReduction first = ReduceChoices(problem);
  Brancher whole(first.problem, kForbidden, options, deadline);
  ChoiceAnswer answer;
  bool complete = whole.PassMessages();
  answer.bound_s = whole.bound_s();
  if (whole.best()) answer.choices = first.Expand(whole.best()->choices);
  if (!complete) {
    // What messages leave is less to branch on.
    const ChoiceReduction core = ReduceChoices(first.problem, whole.kept());
    const double known_s = whole.best() ? whole.best()->cost_s : kForbidden;
    Brancher rest(core.problem, known_s, options, deadline);
    if (!rest.PassMessages()) rest.Branch();
    complete = rest.complete();
    answer.bound_s = std::max(answer.bound_s, rest.bound_s());
    answer.branches = 1 + rest.branches();
    answer.decider = complete ? Decider::kBranches : Decider::kTime;
    if (rest.best()) answer.choices = first.Expand(core.Expand(rest.best()->choices));
  }
  if (answer.choices.empty() && !problem.nodes.empty()) {
    if (complete) return Fail(ResourceExhausted("no choices that are allowed together fit"));
    return Fail(DeadlineExceeded(
        fmt::format("no choices that fit were found in {} ms", options.timeout_ms)));
  }
  answer.cost_s = EvaluateChoices(problem, answer.choices).cost_s;
  answer.bound_s = std::clamp(answer.bound_s, 0.0, answer.cost_s);
  return answer;
}

}  // namespace meshwright::search
