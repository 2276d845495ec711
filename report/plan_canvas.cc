#include "report/plan_canvas.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshwright::report {
namespace {

std::string XmlText(std::string_view text) {
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

}  // namespace

void Canvas::Text(double x, int y, std::string_view text, const char* weight) {
  body += fmt::format("<text x=\"{:.1f}\" y=\"{}\" font-weight=\"{}\" fill=\"#202020\">{}</text>\n",
                      x, y, weight, XmlText(text));
  width = std::max(width, static_cast<int>(x) + static_cast<int>(text.size()) * kSvgChar);
}

void Canvas::Rect(double x, double wide, int y, int height, std::string_view fill,
                  const std::string& tip) {
  body += fmt::format("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"", x,
                      y, std::max(wide, 0.2), height, fill);
  body += tip.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", XmlText(tip));
}

std::string RowLabel(const ir::Program& program) {
  return fmt::format("s{} device {}", program.stage.value(), program.device.value());
}

}  // namespace meshwright::report
