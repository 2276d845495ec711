#include "report/visualize_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"

namespace meshwright::report {
namespace {

constexpr int kNoDim = -1;

struct ViewDims {
  int row = kNoDim;
  int column = kNoDim;
  std::vector<int> panels;  // split dims that are neither
};

class ViewMaker {
 public:
  ViewMaker(const ir::TensorType& type, const mesh::Sharding& sharding, const mesh::Mesh& mesh)
      : type_(type), sharding_(sharding), mesh_(mesh), dims_(ChooseDims()) {}

  GridView Run() {
    GridView view;
    view.title = Title();
    view.notes = Notes();
    view.row_labels = Labels(dims_.row);
    view.column_labels = Labels(dims_.column);
    AddPanels(view);
    Fill(view);
    return view;
  }

 private:
  int64_t Blocks(int dim) const {
    return dim == kNoDim ? 1 : mesh_.SizeOf(sharding_.dims[static_cast<size_t>(dim)]);
  }

  ViewDims ChooseDims() const {
    const int rank = type_.rank();
    std::vector<int> chosen, split;
    for (int d = 0; d < rank; ++d) {
      if (Blocks(d) > 1) split.push_back(d);
    }
    ViewDims dims;
    chosen = split;
    while (chosen.size() > 2) {
      dims.panels.push_back(chosen.front());
      chosen.erase(chosen.begin());
    }
    for (int d = rank - 1; d >= 0 && chosen.size() < 2; --d) {
      if (Blocks(d) == 1) chosen.push_back(d);
    }
    MW_CHECK(chosen.size() <= 2) << "a grid has rows and columns";
    std::sort(chosen.begin(), chosen.end());
    if (!chosen.empty()) dims.column = chosen.back();
    if (chosen.size() == 2) dims.row = chosen.front();
    return dims;
  }

  std::string Range(int dim, int64_t block) const {
    MW_CHECK(dim >= 0 && dim < type_.rank() && block < Blocks(dim))
        << "block " << block << " of dim " << dim << " of " << type_.ToString();
    const int64_t size = type_.dims[static_cast<size_t>(dim)] / Blocks(dim);
    return fmt::format("{}:{}", block * size, (block + 1) * size);
  }

  std::vector<std::string> Labels(int dim) const {
    std::vector<std::string> labels;
    for (int64_t block = 0; block < Blocks(dim); ++block) {
      labels.push_back(dim == kNoDim ? "" : Range(dim, block));
    }
    return labels;
  }

  std::string Title() const {
    std::vector<std::string> axes;
    for (const ir::MeshAxis& axis : mesh_.axes) {
      axes.push_back(fmt::format("{}={}", axis.name, axis.size));
    }
    return fmt::format("{} over {}", mesh::FormatSharding(type_, sharding_),
                       axes.empty() ? "one device" : fmt::format("{}", fmt::join(axes, " ")));
  }

  std::vector<std::string> Notes() const {
    std::vector<std::string> notes;
    if (dims_.row != kNoDim) {
      notes.push_back(fmt::format("rows: dim {}, columns: dim {}", dims_.row, dims_.column));
    } else if (dims_.column != kNoDim) {
      notes.push_back("columns: dim 0");
    }
    if (!sharding_.partial.empty()) {
      std::vector<std::string> axes;
      for (const auto& [axis, kind] : sharding_.partial) axes.push_back(axis);
      notes.push_back(fmt::format("partial over {}: the devices of a cell hold parts of its value",
                                  fmt::join(axes, ", ")));
    }
    return notes;
  }

  void AddPanels(GridView& view) const {
    view.panels = {GridPanel{}};
    for (int dim : dims_.panels) {
      std::vector<GridPanel> next;
      for (const GridPanel& panel : view.panels) {
        for (int64_t block = 0; block < Blocks(dim); ++block) {
          next.push_back({fmt::format("{}{}dim {} [{}]", panel.title,
                                      panel.title.empty() ? "" : ", ", dim, Range(dim, block)),
                          {}});
        }
      }
      view.panels = std::move(next);
    }
    for (GridPanel& panel : view.panels) {
      panel.cells.assign(view.row_labels.size(), std::vector<GridCell>(view.column_labels.size()));
    }
  }

  size_t BlockAt(const ir::Box& box, int dim) const {
    if (dim == kNoDim) return 0;
    const auto d = static_cast<size_t>(dim);
    return box.size[d] == 0 ? 0 : static_cast<size_t>(box.offset[d] / box.size[d]);
  }

  void Fill(GridView& view) const {
    int64_t count = 1;
    for (const ir::MeshAxis& axis : mesh_.axes) count *= axis.size;
    for (int64_t position = 0; position < count; ++position) {
      const ir::Box box = mesh::LocalBox(type_.dims, sharding_, mesh_, position);
      size_t panel = 0;
      for (int dim : dims_.panels) {
        panel = panel * static_cast<size_t>(Blocks(dim)) + BlockAt(box, dim);
      }
      const bool named = position < mesh_.device_count();
      view.panels[panel]
          .cells[BlockAt(box, dims_.row)][BlockAt(box, dims_.column)]
          .devices.push_back(named ? mesh_.devices[static_cast<size_t>(position)].value()
                                   : static_cast<int32_t>(position));
    }
  }

  const ir::TensorType& type_;
  const mesh::Sharding& sharding_;
  const mesh::Mesh& mesh_;
  const ViewDims dims_;
};

}  // namespace

GridView MakeGridView(const ir::TensorType& type, const mesh::Sharding& sharding,
                      const mesh::Mesh& mesh) {
  return ViewMaker(type, sharding, mesh).Run();
}

std::vector<std::string> WrapDevices(const GridCell& cell, size_t width) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < cell.devices.size(); ++i) {
    const char* const comma = i + 1 < cell.devices.size() ? "," : "";
    const std::string entry = fmt::format("{}{}", cell.devices[i], comma);
    if (lines.empty() || lines.back().size() + entry.size() > width) {
      lines.push_back(entry);
    } else {
      lines.back() += entry;
    }
  }
  return lines;
}

}  // namespace meshwright::report
