// The SVG picture: the same panels, one below the other. Cells are as large as their text; a cell's
// color follows its first device, so equal colors in two panels are the same devices.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "report/visualize.h"
#include "report/visualize_view.h"

namespace meshwright::report {
namespace {

constexpr int kFont = kSvgFontSize, kChar = 8, kLine = 17, kPadding = 12, kMargin = 16;
constexpr size_t kWrap = 16;  // characters of a device list per line

std::string Escape(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Light colors, far apart for neighbouring numbers: hues advance by the golden ratio.
std::string ColorOf(int32_t device) {
  const double hue = std::fmod(0.55 + 0.618033988749895 * device, 1.0) * 6;
  const auto channel = [&](double shift) {
    const double k = std::fmod(hue + shift, 6.0);
    const double ramp = std::clamp(std::min(k, 4 - k), 0.0, 1.0);  // 0..1 of full saturation
    return static_cast<int>(std::lround(245 - 75 * ramp));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(5), channel(3), channel(1));
}

int WidthOf(const std::string& text) { return static_cast<int>(text.size()) * kChar; }

class SvgRenderer {
 public:
  explicit SvgRenderer(const GridView& view) : view_(view) { Measure(); }

  SvgGrid Run() {
    int y = kMargin;
    Text(kMargin, y += kLine, view_.title, "start", "bold");
    for (const std::string& note : view_.notes) Text(kMargin, y += kLine, note, "start");
    for (const GridPanel& panel : view_.panels) y = DrawPanel(panel, y + kPadding);
    const int columns = static_cast<int>(view_.column_labels.size());
    int width = left_ + columns * cell_width_ + kMargin;
    width = std::max(width, 2 * kMargin + WidthOf(view_.title) + kChar);
    for (const std::string& note : view_.notes) {
      width = std::max(width, 2 * kMargin + WidthOf(note));
    }
    return {width, y + kMargin, std::move(body_)};
  }

 private:
  void Measure() {
    int label = 0;
    for (const std::string& text : view_.row_labels) label = std::max(label, WidthOf(text));
    left_ = kMargin + (label > 0 ? label + kPadding : 0);
    int content = 4 * kChar;
    size_t lines = 1;
    for (const std::string& text : view_.column_labels) content = std::max(content, WidthOf(text));
    for (const GridPanel& panel : view_.panels) {
      for (const auto& row : panel.cells) {
        for (const GridCell& cell : row) {
          const std::vector<std::string> wrapped = WrapDevices(cell, kWrap);
          lines = std::max(lines, wrapped.size());
          for (const std::string& line : wrapped) content = std::max(content, WidthOf(line));
        }
      }
    }
    cell_width_ = content + 2 * kPadding;
    cell_height_ = static_cast<int>(lines) * kLine + 2 * kPadding;
  }

  void Text(int x, int y, const std::string& text, const char* anchor,
            const char* weight = "normal") {
    body_ += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" font-weight=\"{}\" "
        "fill=\"#202020\">{}</text>\n",
        x, y, anchor, weight, Escape(text));
  }

  // Returns the y below the panel.
  int DrawPanel(const GridPanel& panel, int y) {
    MW_CHECK(panel.cells.size() == view_.row_labels.size())
        << panel.cells.size() << " rows of cells, " << view_.row_labels.size() << " labels";
    if (!panel.title.empty()) Text(kMargin, y += kLine, panel.title, "start");
    y += kLine;
    for (size_t c = 0; c < view_.column_labels.size(); ++c) {
      Text(ColumnAt(c) + cell_width_ / 2, y, view_.column_labels[c], "middle");
    }
    y += kPadding / 2;
    for (size_t r = 0; r < panel.cells.size(); ++r) {
      Text(left_ - kPadding / 2, y + cell_height_ / 2 + kFont / 3, view_.row_labels[r], "end");
      for (size_t c = 0; c < panel.cells[r].size(); ++c)
        DrawCell(panel.cells[r][c], ColumnAt(c), y);
      y += cell_height_;
    }
    return y;
  }

  int ColumnAt(size_t column) const { return left_ + static_cast<int>(column) * cell_width_; }

  void DrawCell(const GridCell& cell, int x, int y) {
    body_ += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#404040\"/>\n", x,
        y, cell_width_, cell_height_, ColorOf(cell.devices.empty() ? 0 : cell.devices.front()));
    const std::vector<std::string> lines = WrapDevices(cell, kWrap);
    int baseline = y + (cell_height_ - static_cast<int>(lines.size()) * kLine) / 2 + kFont;
    for (const std::string& line : lines) {
      Text(x + cell_width_ / 2, baseline, line, "middle");
      baseline += kLine;
    }
  }

  const GridView& view_;
  int left_ = 0;
  int cell_width_ = 0;
  int cell_height_ = 0;
  std::string body_;
};

}  // namespace

Result<SvgGrid> DrawSvg(const ir::TensorType& type, const mesh::Sharding& sharding,
                        const mesh::Mesh& mesh) {
  MW_TRY(mesh::ValidateSharding(type, sharding, mesh));
  return SvgRenderer(MakeGridView(type, sharding, mesh)).Run();
}

Result<std::string> RenderSvg(const ir::TensorType& type, const mesh::Sharding& sharding,
                              const mesh::Mesh& mesh) {
  MW_ASSIGN_OR_RETURN(const SvgGrid grid, DrawSvg(type, sharding, mesh));
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"monospace\" font-size=\"{2}\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{3}</svg>\n",
      grid.width, grid.height, kFont, grid.elements);
}

}  // namespace meshwright::report
