// DrawCurves of report/run_compare.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "report/run_compare.h"

namespace meshwright::report {
namespace {

constexpr int kPanelWidth = 560, kPanelHeight = 360;
constexpr int kLeft = 64, kRight = 16, kTop = 40, kBottom = 44;
constexpr int kLegendLine = 20;
constexpr size_t kMostPoints = 600;  // of a curve
constexpr int kTicksWanted = 5;

// Told apart by people who do not see all colours (Okabe and Ito).
constexpr std::string_view kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                         "#e69f00", "#56b4e9", "#000000", "#f0e442"};
std::string_view ColourOf(size_t run) { return kColours[run % std::size(kColours)]; }

struct CurvePoint {
  double x = 0, y = 0;
};
struct RunCurve {
  std::vector<CurvePoint> loss, validation;
};

std::string SvgText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

RunCurve CurveOf(const ComparedRun& run, bool by_tokens) {
  RunCurve curve;
  double tokens = 0;
  for (const client::StepMetrics& step : run.steps) {
    if (!std::isnan(step.tokens)) tokens += step.tokens;
    const double x = by_tokens ? tokens : static_cast<double>(step.step + 1);
    if (std::isfinite(step.loss)) curve.loss.push_back({x, step.loss});
    if (std::isfinite(step.validation_loss)) curve.validation.push_back({x, step.validation_loss});
  }
  return curve;
}

// Means of neighbours, so that there are not too many.
std::vector<CurvePoint> Thinned(const std::vector<CurvePoint>& points) {
  const size_t stride = (points.size() + kMostPoints - 1) / kMostPoints;
  if (stride <= 1) return points;
  std::vector<CurvePoint> thin;
  for (size_t begin = 0; begin < points.size(); begin += stride) {
    const size_t end = std::min(points.size(), begin + stride);
    CurvePoint mean{points[end - 1].x, 0};
    for (size_t i = begin; i < end; ++i) mean.y += points[i].y / static_cast<double>(end - begin);
    thin.push_back(mean);
  }
  return thin;
}

struct Axis {
  double least = 0, most = 1;
  double tick = 1;
};

// Ticks at 1, 2 or 5 times a power of ten.
Axis AxisOf(double least, double most) {
  if (!(most > least)) {
    const double pad = least == 0 ? 1 : std::abs(least) * 0.1;
    least -= pad;
    most += pad;
  }
  const double rough = (most - least) / kTicksWanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double tick = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      tick = factor * power;
      break;
    }
  }
  return {std::floor(least / tick) * tick, std::ceil(most / tick) * tick, tick};
}

std::string TickText(double value) {
  const double size = std::abs(value);
  if (size >= 1e9) return fmt::format("{:g}B", value / 1e9);
  if (size >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", std::abs(value) < 1e-12 ? 0.0 : value);
}

class Panel {
 public:
  Panel(int left, std::string title, std::vector<RunCurve> curves)
      : left_(left), title_(std::move(title)), curves_(std::move(curves)) {
    double least_x = std::numeric_limits<double>::max(), most_x = 0;
    double least_y = std::numeric_limits<double>::max(), most_y = -least_y;
    MW_CHECK(!curves_.empty());
    for (const RunCurve& curve : curves_) {
      for (const auto* points : {&curve.loss, &curve.validation}) {
        for (const CurvePoint& point : *points) {
          least_x = std::min(least_x, point.x);
          most_x = std::max(most_x, point.x);
          least_y = std::min(least_y, point.y);
          most_y = std::max(most_y, point.y);
        }
      }
    }
    if (most_y < least_y) least_y = most_y = least_x = 0;
    x_ = AxisOf(std::min(least_x, most_x), most_x);
    y_ = AxisOf(least_y, most_y);
    MW_CHECK(x_.most > x_.least && y_.most > y_.least) << "an axis of no length";
  }

  std::string Draw() const {
    std::string out = fmt::format(
        "<g transform=\"translate({},0)\">\n<text x=\"{}\" y=\"24\" class=\"t\">{}</text>\n", left_,
        kLeft, SvgText(title_));
    for (int i = 0; y_.least + i * y_.tick <= y_.most + y_.tick / 2; ++i) {
      const double value = y_.least + i * y_.tick;
      out += fmt::format(
          "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" class=\"g\"/>"
          "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
          kLeft, kPanelWidth - kRight, Y(value), Y(value), kLeft - 8, Y(value) + 4,
          TickText(value));
    }
    for (int i = 0; x_.least + i * x_.tick <= x_.most + x_.tick / 2; ++i) {
      const double value = x_.least + i * x_.tick;
      out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", X(value),
                         kPanelHeight - kBottom + 18, TickText(value));
    }
    for (size_t run = 0; run < curves_.size(); ++run) out += DrawCurve(run);
    return out + "</g>\n";
  }

 private:
  double X(double value) const {
    return kLeft + (value - x_.least) / (x_.most - x_.least) * (kPanelWidth - kLeft - kRight);
  }
  double Y(double value) const {
    return kPanelHeight - kBottom -
           (value - y_.least) / (y_.most - y_.least) * (kPanelHeight - kTop - kBottom);
  }
  std::string DrawCurve(size_t run) const {
    std::string points;
    for (const CurvePoint& point : Thinned(curves_[run].loss)) {
      points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", X(point.x), Y(point.y));
    }
    std::string out =
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>\n",
                    points, ColourOf(run));
    for (const CurvePoint& point : curves_[run].validation) {
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n",
                         X(point.x), Y(point.y), ColourOf(run));
    }
    return out;
  }

  const int left_;
  const std::string title_;
  const std::vector<RunCurve> curves_;
  Axis x_, y_;
};

}  // namespace

std::string DrawCurves(const std::vector<ComparedRun>& runs) {
  std::vector<RunCurve> by_step, by_token;
  for (const ComparedRun& run : runs) {
    by_step.push_back(CurveOf(run, false));
    by_token.push_back(CurveOf(run, true));
  }
  const int height = kPanelHeight + kLegendLine * (static_cast<int>(runs.size()) + 1);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\">\n<title>Losses of {2} runs</title>\n"
      "<style>text{{font:12px sans-serif;fill:#333}}.t{{font-weight:bold}}"
      ".g{{stroke:#ddd}}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      2 * kPanelWidth, height, runs.size());
  out += Panel(0, "Loss over steps", std::move(by_step)).Draw();
  out += Panel(kPanelWidth, "Loss over tokens", std::move(by_token)).Draw();
  for (size_t run = 0; run < runs.size(); ++run) {
    const int y = kPanelHeight + kLegendLine * (static_cast<int>(run) + 1);
    out += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"24\" height=\"4\" fill=\"{}\"/>"
        "<text x=\"{}\" y=\"{}\">{}</text>\n",
        kLeft, y - 6, ColourOf(run), kLeft + 32, y, SvgText(runs[run].label));
  }
  return out + "</svg>\n";
}

}  // namespace meshwright::report
