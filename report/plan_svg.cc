#include "report/plan_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "planner/schedule.h"
#include "planner/simulate.h"
#include "planner/strategy.h"
#include "planner/vocabulary_schedule.h"
#include "report/memory_strips.h"
#include "report/plan_canvas.h"
#include "report/plan_figures.h"
#include "report/visualize.h"

namespace meshwright::report {
namespace {

constexpr int kRowHeight = 24;
constexpr size_t kMostRows = 32;
constexpr size_t kMostMessages = 600;  // more hide what is below
constexpr size_t kMostWeights = 4;
constexpr int kTicks = 10;
constexpr int kNumberChar = 6;  // of a microbatch within its run

struct Colour {
  std::string_view what;
  std::string_view fill;
};
constexpr Colour kColours[] = {
    {"forward", "#6baed6"},
    {"backward", "#fd8d3c"},
    {"weight gradient", "#9e9ac8"},
    {"update", "#74c476"},
    {"waits for a message", "#fff3bf"},
    {"idle", kIdleColour},
};
constexpr std::string_view kWaitColour = kColours[4].fill;
constexpr std::string_view kLaneColour = "#333333";
constexpr int kLaneHeight = 4;

std::string_view ColourOfPiece(std::string_view category) {
  for (const Colour& colour : kColours) {
    if (colour.what == category) return colour.fill;
  }
  return kIdleColour;
}

// Of a stage's parts each later one is darker.
std::string ShadeOf(std::string_view fill, int part, int parts) {
  if (part == 0) return std::string(fill);
  MW_CHECK(fill.size() == 7 && part < parts) << fill << " of part " << part << " of " << parts;
  const double share = 1 - 0.4 * part / (parts - 1);
  std::string shade = "#";
  for (size_t i = 1; i < fill.size(); i += 2) {
    const int channel = std::stoi(std::string(fill.substr(i, 2)), nullptr, 16);
    shade += fmt::format("{:02x}", static_cast<int>(channel * share));
  }
  return shade;
}

// "b.1" is the backward of a stage's part 1, "b" that of part 0.
int PartOfPiece(std::string_view piece) {
  const size_t dot = piece.find('.');
  return dot == std::string_view::npos ? 0 : std::stoi(std::string(piece.substr(dot + 1)));
}

// What the header's degrees do not say: whose experts are shared, and how attention meets its row.
std::vector<std::string> SharedText(const planner::Layout& layout) {
  std::vector<std::string> lines;
  if (layout.expert() > 1) {
    lines.push_back(fmt::format(
        "experts: the {} replicas are {} groups of {} that share the experts of a layer; "
        "weights below are "
        "over data={} expert={}",
        layout.data(), layout.data() / layout.expert(), layout.expert(),
        layout.data() / layout.expert(), layout.expert()));
  }
  if (layout.expert_hosts > 1) {
    lines.push_back(fmt::format(
        "tokens go to each of {} hosts once, over the axis {}, and from there to the ranks of "
        "their experts, over {}",
        layout.expert_hosts, planner::kExpert, planner::kExpertLanes));
  }
  if (layout.expert_chunks > 1) {
    lines.push_back(fmt::format("rows go to experts and back in {} chunks", layout.expert_chunks));
  }
  if (layout.tensor_chunks > 1) {
    lines.push_back(
        fmt::format("products of a tensor group go in up to {} chunks", layout.tensor_chunks));
  }
  if (layout.context() > 1 && layout.context_heads > 1 && layout.context_heads < layout.context()) {
    lines.push_back(fmt::format(
        "rows: the {} devices that share a row are {} groups of {} neighbours that share heads; "
        "weights "
        "below are over context={} {}={}",
        layout.context(), layout.context() / layout.context_heads, layout.context_heads,
        layout.context() / layout.context_heads, planner::kContextHeads, layout.context_heads));
  }
  return lines;
}

// What the shades of a colour are, in the order of PartOfPiece: parts of a stage's layers, or where
// stages share the vocabulary the steps of each of them.
std::vector<std::string> PartNames(const planner::Layout& layout) {
  if (planner::SharesVocabulary(layout)) return {"embedding", "layers", "output", "loss"};
  std::vector<std::string> names;
  for (int part = 0; part < layout.chunks; ++part) {
    names.push_back(fmt::format("part {} of a stage", part));
  }
  return names;
}

// What colours and shades mean, from y on; returns the y below it.
int DrawLegend(int y, const std::vector<std::string>& names, Canvas& canvas) {
  y += kSvgLine / 2;
  double x = kPlotLeft;
  for (const Colour& colour : kColours) {
    canvas.Rect(x, 14, y, 14, colour.fill);
    canvas.Text(x + 20, y + 12, colour.what);
    x += 40 + static_cast<double>(colour.what.size()) * kSvgChar;
  }
  canvas.Text(x, y + 12, "lines: messages, from the run before to the run that reads (if few)");
  y += kSvgLine;
  x = kPlotLeft;
  const int parts = static_cast<int>(names.size());
  for (int part = 0; parts > 1 && part < parts; ++part) {
    const std::string& text = names[static_cast<size_t>(part)];
    canvas.Rect(x, 14, y, 14, ShadeOf(kColours[0].fill, part, parts));
    canvas.Rect(x + 14, 14, y, 14, ShadeOf(kColours[1].fill, part, parts));
    canvas.Text(x + 34, y + 12, text);
    x += 54 + static_cast<double>(text.size()) * kSvgChar;
  }
  canvas.Text(x, y + 12, "numbers: the microbatch of a run (if there is room)");
  return y + kSvgLine + kSvgLine / 2;
}

// A run of a piece, from `begin` to `end` across.
struct RunMark {
  int microbatch = 0;
  std::string piece;
  int stage = 0;
  double begin = 0;
  double end = 0;

  void Draw(const planner::Span& span, const planner::Layout& layout, int y, Canvas& canvas) const {
    const std::string_view category = planner::PieceCategory(piece);
    const bool update = category == "update";
    const int part = PartOfPiece(piece);
    const std::vector<std::string> names = PartNames(layout);
    const int parts = static_cast<int>(names.size());
    std::string layers;
    if (parts > 1 && !update) {
      MW_CHECK(part < parts) << piece << " is of no part";
      layers = planner::SharesVocabulary(layout)
                   ? fmt::format(", {}", names[static_cast<size_t>(part)])
                   : fmt::format(", part {} of the model", layout.shape().PartOf(stage, part));
    }
    const double width = end - begin;
    canvas.Rect(
        begin, width, y + 1, kRowHeight - 2, ShadeOf(ColourOfPiece(category), part, parts),
        fmt::format("{} of microbatch {}{}: {} from {}", category, microbatch, layers,
                    FormatDuration(span.end_s - span.begin_s), FormatDuration(span.begin_s)));
    // Runs of one kind that follow each other are told apart.
    if (width > 2) canvas.Rect(begin, 0.6, y + 1, kRowHeight - 2, "#ffffff");
    const std::string number = std::to_string(microbatch);
    if (update || width < static_cast<double>(number.size() + 1) * kNumberChar) return;
    canvas.body += fmt::format(
        "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\" "
        "fill=\"{}\">{}</text>\n",
        begin + width / 2, y + kRowHeight - 8, 2 * part < parts ? "#202020" : "#ffffff", number);
  }
};

std::vector<std::vector<planner::Span>> ByProgram(const planner::Plan& plan,
                                                  const std::vector<planner::Span>& spans) {
  std::map<int, size_t> program_of;
  for (size_t i = 0; i < plan.Main().size(); ++i) program_of[plan.Main()[i].device.value()] = i;
  std::vector<std::vector<planner::Span>> by_program(plan.Main().size());
  for (const planner::Span& span : spans) {
    MW_CHECK(program_of.contains(span.device))
        << "a run of device " << span.device << ", which the plan lacks";
    by_program[program_of.at(span.device)].push_back(span);
  }
  return by_program;
}

// Between two instructions, neither of them; -1: the beginning.
bool Receives(const ir::Program& program, int after, int before) {
  MW_CHECK(after >= -1 && static_cast<size_t>(before) < program.instructions.size())
      << "instructions " << after << " to " << before << " of " << program.instructions.size();
  for (int i = after + 1; i < before; ++i) {
    if (program.instructions[static_cast<size_t>(i)].op == ir::Opcode::kRecv) return true;
  }
  return false;
}

class PlanDrawer {
 public:
  PlanDrawer(const planner::Plan& plan, const planner::Forecast& forecast,
             const mesh::Topology& topology)
      : plan_(plan),
        forecast_(forecast),
        topology_(topology),
        scale_{forecast.simulation.makespan_s} {
    ChooseRows();
    spans_ = ByProgram(plan, forecast.simulation.spans);
    beside_ = ByProgram(plan, forecast.simulation.beside);
  }

  std::string Run() {
    canvas_.Text(kSvgMargin, y_ += kSvgLine, plan_.layout.ToString(), "bold");
    canvas_.Text(kSvgMargin, y_ += kSvgLine,
                 fmt::format("step {} (forecast), waiting {:.1f} % of the time",
                             FormatDuration(forecast_.step_s), 100 * forecast_.idle_of_total));
    for (const std::string& line : SharedText(plan_.layout))
      canvas_.Text(kSvgMargin, y_ += kSvgLine, line);
    y_ = DrawLegend(y_, PartNames(plan_.layout), canvas_);
    if (!forecast_.simulation.beside.empty()) {
      canvas_.Rect(kPlotLeft, 14, y_ - 4, kLaneHeight, kLaneColour);
      canvas_.Text(kPlotLeft + 20, y_, "gradients are reduced while others are made");
      y_ += kSvgLine;
    }
    DrawTimeline();
    if (!forecast_.simulation.spans.empty()) {
      y_ = DrawMemoryStrips(plan_, forecast_.simulation, topology_, y_, canvas_);
    }
    DrawWeights();
    return Document();
  }

  std::string RunStep(const std::string& title) {
    canvas_.Text(kSvgMargin, y_ += kSvgLine, plan_.layout.ToString(), "bold");
    canvas_.Text(kSvgMargin, y_ += kSvgLine, title);
    y_ = DrawLegend(y_, PartNames(plan_.layout), canvas_);
    DrawTimeline();
    return Document();
  }

 private:
  std::string Document() const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" font-family=\"monospace\" font-size=\"{2}\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{3}</svg>\n",
        canvas_.width + kSvgMargin, y_ + kSvgMargin, kSvgFontSize, canvas_.body);
  }

  // Every device, or the first one of each stage.
  void ChooseRows() {
    std::set<int> stages;
    for (size_t i = 0; i < plan_.Main().size(); ++i) {
      const bool first = stages.insert(plan_.Main()[i].stage.value()).second;
      if (plan_.Main().size() <= kMostRows || first) rows_.push_back(i);
    }
  }

  double AtTime(double seconds) const { return scale_.At(seconds); }

  // ---- parts of the picture ----

  void DrawTimeline() {
    const int top = y_;
    for (const size_t program : rows_) {
      canvas_.Text(kSvgMargin, y_ + kRowHeight - 8, RowLabel(plan_.Main()[program]));
      canvas_.Rect(kPlotLeft, kPlotWidth, y_ + 1, kRowHeight - 2, kIdleColour);
      DrawRow(program);
      y_ += kRowHeight;
    }
    DrawMessages(top);
    for (int tick = 0; tick <= kTicks; ++tick) {
      const double seconds = forecast_.simulation.makespan_s * tick / kTicks;
      canvas_.Text(AtTime(seconds) - 12, y_ + kSvgLine, FormatDuration(seconds));
    }
    y_ += 2 * kSvgLine;
  }

  void DrawRow(size_t program) {
    const ir::Program& step = plan_.Main()[program];
    double idle_from_s = 0;
    int before = -1;  // instruction of the span before
    for (const planner::Span& span : spans_[program]) {
      if (Receives(step, before, span.instruction) && span.begin_s > idle_from_s) {
        canvas_.Rect(AtTime(idle_from_s), AtTime(span.begin_s) - AtTime(idle_from_s), y_ + 1,
                     kRowHeight - 2, kWaitColour);
      }
      const ir::Instruction& run = step.instructions[static_cast<size_t>(span.instruction)];
      const ir::Executable& executable = step.executables[run.executable.index()];
      const RunMark mark{run.microbatch, planner::ExecutablePiece(executable), step.stage.value(),
                         AtTime(span.begin_s), AtTime(span.end_s)};
      mark.Draw(span, plan_.layout, y_, canvas_);
      idle_from_s = span.end_s;
      before = span.instruction;
    }
    // The lane of collectives is the foot of the row.
    for (const planner::Span& span : beside_[program]) {
      canvas_.Rect(AtTime(span.begin_s), AtTime(span.end_s) - AtTime(span.begin_s),
                   y_ + kRowHeight - kLaneHeight - 1, kLaneHeight, kLaneColour);
    }
  }

  struct End {
    double time_s = 0;
    size_t row = 0;
  };
  using Ends = std::map<std::string, std::vector<End>>;  // by channel, in the order of messages

  // A message leaves with the end of the run before its SEND, and is read by the run behind its
  // RECV.
  void AddEnds(size_t row, Ends& sent, Ends& received) const {
    const ir::Program& program = plan_.Main()[rows_[row]];
    const std::vector<planner::Span>& spans = spans_[rows_[row]];
    size_t next = 0;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      while (next < spans.size() && static_cast<size_t>(spans[next].instruction) <= i) ++next;
      const ir::Instruction& instruction = program.instructions[i];
      if (instruction.op != ir::Opcode::kSend && instruction.op != ir::Opcode::kRecv) continue;
      const auto& channel = program.channels[instruction.channel.index()];
      if (instruction.op == ir::Opcode::kSend) {
        MW_CHECK(next <= spans.size()) << "more runs than were replayed";
        sent[channel.name].push_back({next > 0 ? spans[next - 1].end_s : 0, row});
      } else {
        const double end_s = forecast_.simulation.makespan_s;
        received[channel.name].push_back({next < spans.size() ? spans[next].begin_s : end_s, row});
      }
    }
  }

  void DrawMessages(int top) {
    Ends sent, received;
    for (size_t row = 0; row < rows_.size(); ++row) AddEnds(row, sent, received);
    std::vector<std::pair<End, End>> messages;
    for (const auto& [channel, starts] : sent) {
      const auto it = received.find(channel);
      if (it == received.end()) continue;  // of a device without a row
      for (size_t i = 0; i < std::min(starts.size(), it->second.size()); ++i) {
        messages.emplace_back(starts[i], it->second[i]);
      }
    }
    if (messages.size() > kMostMessages) return;
    const auto middle = [&](size_t row) {
      return top + static_cast<int>(row) * kRowHeight + kRowHeight / 2;
    };
    for (const auto& [from, to] : messages) {
      canvas_.body += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{}\" x2=\"{:.1f}\" y2=\"{}\" stroke=\"#303030\" "
          "stroke-width=\"0.6\" stroke-opacity=\"0.5\"/>\n",
          AtTime(from.time_s), middle(from.row), AtTime(to.time_s), middle(to.row));
    }
  }

  // The largest ones; of several that are split alike the first.
  void DrawWeights() {
    std::vector<const planner::ParamInfo*> params;
    for (const planner::ParamInfo& param : plan_.params) {
      if (!param.stages.empty()) params.push_back(&param);
    }
    std::stable_sort(params.begin(), params.end(),
                     [](const planner::ParamInfo* a, const planner::ParamInfo* b) {
                       return a->type.bytes() > b->type.bytes();
                     });
    std::set<std::string> seen;
    canvas_.Text(kSvgMargin, y_ += kSvgLine, "the largest weights", "bold");
    y_ += kSvgLine / 2;
    for (const planner::ParamInfo* param : params) {
      if (seen.size() == kMostWeights) break;
      const std::string text = mesh::FormatSharding(param->type, param->sharding);
      MW_CHECK(static_cast<size_t>(param->stages.front()) < plan_.stages.size())
          << param->name << " is held by stage " << param->stages.front();
      const int stage = param->stages.front();
      if (!seen.insert(text).second) continue;
      const auto grid =
          DrawSvg(param->type, param->sharding, plan_.stages[static_cast<size_t>(stage)].mesh);
      if (!grid.has_value()) continue;
      canvas_.Text(kSvgMargin, y_ += kSvgLine,
                   fmt::format("{}: {} of {} (stage {})", param->name, text,
                               FormatBytes(param->type.bytes()), stage));
      canvas_.body += fmt::format("<g transform=\"translate({},{})\">\n{}</g>\n", kSvgMargin, y_,
                                  grid->elements);
      canvas_.width = std::max(canvas_.width, kSvgMargin + grid->width);
      y_ += grid->height;
    }
  }

  const planner::Plan& plan_;
  const planner::Forecast& forecast_;
  const mesh::Topology& topology_;
  const TimeScale scale_;
  std::vector<size_t> rows_;                        // programs that are drawn
  std::vector<std::vector<planner::Span>> spans_;   // per program, in order of begin
  std::vector<std::vector<planner::Span>> beside_;  // per program: collectives beside what computes
  int y_ = kSvgMargin;                              // the next free line
  Canvas canvas_;
};

}  // namespace

std::string PlanSvg(const planner::Plan& plan, const planner::Forecast& forecast,
                    const mesh::Topology& topology) {
  return PlanDrawer(plan, forecast, topology).Run();
}

std::string StepSvg(const planner::Plan& plan, planner::Simulation simulation,
                    const mesh::Topology& topology, const std::string& title) {
  planner::Forecast shown;
  shown.step_s = simulation.makespan_s;
  shown.simulation = std::move(simulation);
  return PlanDrawer(plan, shown, topology).RunStep(title);
}

}  // namespace meshwright::report
