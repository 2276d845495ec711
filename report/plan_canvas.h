// What the parts of a plan's picture have in common (report/plan_svg.h): its measures, and the
// elements drawn so far.
//
// Thread rule: values.
#pragma once

#include <string>
#include <string_view>

#include "ir/program.h"

namespace meshwright::report {

inline constexpr int kSvgMargin = 16;
inline constexpr int kSvgLine = 18;
inline constexpr int kSvgChar = 8;
inline constexpr int kLabelWidth = 150;  // "1023.99 GiB, 100 %" stands before its strip
inline constexpr int kPlotWidth = 1100;
inline constexpr double kPlotLeft = kSvgMargin + kLabelWidth;
inline constexpr std::string_view kIdleColour = "#ececec";

// Elements are SVG; `width` is what they need.
struct Canvas {
  std::string body;
  int width = kSvgMargin + kLabelWidth + kPlotWidth;

  void Text(double x, int y, std::string_view text, const char* weight = "normal");
  void Rect(double x, double wide, int y, int height, std::string_view fill,
            const std::string& tip = "");
};

// Where a time of a step is, across.
struct TimeScale {
  double total_s = 0;

  double At(double seconds) const {
    return kPlotLeft + (total_s > 0 ? seconds / total_s : 0) * kPlotWidth;
  }
};

// What stands before what is drawn of a device.
std::string RowLabel(const ir::Program& program);

}  // namespace meshwright::report
