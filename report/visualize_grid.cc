// The terminal picture:
//   f32[8{data},16{tensor}] over data=2 tensor=2
//   rows: dim 0, columns: dim 1
//         0:8   8:16
//       ┌──────┬──────┐
//   0:4 │  0   │  1   │
//       ├──────┼──────┤
//   4:8 │  2   │  3   │
//       └──────┴──────┘
// Too wide: device lists break into lines first, then columns in the middle give way to one "…"
// column.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "report/visualize.h"
#include "report/visualize_view.h"

namespace meshwright::report {
namespace {

constexpr size_t kElided = static_cast<size_t>(-1);
constexpr int kPalette[] = {117, 156, 222, 211, 183, 159, 216, 150, 229, 147, 123, 180};

std::string Repeat(std::string_view piece, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += piece;
  return text;
}

// Centered; an odd space goes to the right.
std::string Center(const std::string& text, size_t width) {
  return fmt::format("{:^{}}", text, width);
}

class GridRenderer {
 public:
  GridRenderer(const GridView& view, const GridOptions& options) : view_(view), options_(options) {
    Measure();
  }

  std::string Run() {
    AddLine(view_.title);
    for (const std::string& note : view_.notes) AddLine(note);
    for (const GridPanel& panel : view_.panels) {
      if (!panel.title.empty()) AddLine(panel.title);
      DrawPanel(panel);
    }
    return std::move(text_);
  }

 private:
  // Chooses the width of a cell and the columns that are shown.
  void Measure() {
    for (const std::string& label : view_.row_labels)
      label_width_ = std::max(label_width_, label.size());
    size_t longest = 1, longest_entry = 1;
    for (const std::string& label : view_.column_labels)
      longest_entry = std::max(longest_entry, label.size());
    for (const GridPanel& panel : view_.panels) {
      for (const auto& row : panel.cells) {
        for (const GridCell& cell : row) {
          for (const std::string& line : WrapDevices(cell, 0))
            longest_entry = std::max(longest_entry, line.size());
          for (const std::string& line : WrapDevices(cell, std::string::npos))
            longest = std::max(longest, line.size());
        }
      }
    }
    constexpr size_t kComfortable = 4;
    const size_t columns = view_.column_labels.size();
    const size_t margin = label_width_ + (label_width_ > 0 ? 2 : 1);  // labels, space, left border
    const auto max_width = static_cast<size_t>(std::max(options_.max_width, 1));
    const size_t budget = max_width > margin ? max_width - margin : 1;
    const size_t fair = budget / columns;  // with the cell's right border
    width_ = std::max({longest, longest_entry, kComfortable}) + 2;
    if (width_ + 1 > fair) width_ = std::max(fair > 0 ? fair - 1 : 0, longest_entry + 2);
    ChooseColumns(budget / (width_ + 1));
  }

  void ChooseColumns(size_t fitting) {
    const size_t columns = view_.column_labels.size();
    fitting = std::max<size_t>(fitting, 3);
    for (size_t c = 0; c < columns; ++c) {
      if (columns <= fitting || c + 2 < fitting || c + 1 == columns) {
        shown_.push_back(c);
      } else if (shown_.back() != kElided) {
        shown_.push_back(kElided);
      }
    }
  }

  void AddLine(const std::string& line) {
    const size_t end = line.find_last_not_of(' ');
    text_.append(line, 0, end == std::string::npos ? 0 : end + 1);
    text_ += '\n';
  }

  std::string Margin(const std::string& label) const {
    return label_width_ == 0 ? "" : fmt::format("{:>{}} ", label, label_width_);
  }

  void AddRule(std::string_view left, std::string_view middle, std::string_view right) {
    std::string line = Margin("");
    for (size_t i = 0; i < shown_.size(); ++i) {
      line += i == 0 ? left : middle;
      line += Repeat("─", width_);
    }
    AddLine(line + std::string(right));
  }

  void DrawPanel(const GridPanel& panel) {
    MW_CHECK(panel.cells.size() == view_.row_labels.size())
        << panel.cells.size() << " rows of cells, " << view_.row_labels.size() << " labels";
    if (view_.column_labels.size() > 1 || !view_.column_labels[0].empty()) {
      std::string line = Margin("");
      for (size_t c : shown_)
        line += " " + Center(c == kElided ? "" : view_.column_labels[c], width_);
      AddLine(line);
    }
    AddRule("┌", "┬", "┐");
    for (size_t r = 0; r < panel.cells.size(); ++r) {
      if (r > 0) AddRule("├", "┼", "┤");
      DrawRow(panel.cells[r], view_.row_labels[r]);
    }
    AddRule("└", "┴", "┘");
  }

  void DrawRow(const std::vector<GridCell>& row, const std::string& label) {
    MW_CHECK(row.size() == view_.column_labels.size())
        << row.size() << " cells, " << view_.column_labels.size() << " columns";
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (size_t c : shown_) {
      cells.push_back(c == kElided ? std::vector<std::string>{} : WrapDevices(row[c], width_ - 2));
      height = std::max(height, cells.back().size());
    }
    for (size_t h = 0; h < height; ++h) {
      std::string line = Margin(h == 0 ? label : "");
      for (size_t i = 0; i < shown_.size(); ++i) {
        line += "│";
        line += shown_[i] == kElided
                    ? Repeat(" ", width_ / 2) + "…" + Repeat(" ", width_ - width_ / 2 - 1)
                    : Paint(row[shown_[i]], h < cells[i].size() ? cells[i][h] : "");
      }
      AddLine(line + "│");
    }
  }

  std::string Paint(const GridCell& cell, const std::string& content) const {
    std::string centered = Center(content, width_);
    if (!options_.color || cell.devices.empty()) return centered;
    const int color = kPalette[static_cast<size_t>(cell.devices.front()) % std::size(kPalette)];
    return fmt::format("\x1b[38;5;16;48;5;{}m{}\x1b[0m", color, centered);
  }

  const GridView& view_;
  const GridOptions& options_;
  size_t label_width_ = 0;
  size_t width_ = 0;           // of a cell, between its borders
  std::vector<size_t> shown_;  // columns, kElided for a gap
  std::string text_;
};

}  // namespace

Result<std::string> RenderGrid(const ir::TensorType& type, const mesh::Sharding& sharding,
                               const mesh::Mesh& mesh, const GridOptions& options) {
  MW_TRY(mesh::ValidateSharding(type, sharding, mesh));
  return GridRenderer(MakeGridView(type, sharding, mesh), options).Run();
}

}  // namespace meshwright::report
