#include "report/memory_strips.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "planner/memory.h"
#include "report/memory_series.h"

namespace meshwright::report {
namespace {

constexpr int kStripHeight = 40;
constexpr int kStripGap = 6;
constexpr std::array<std::string_view, ir::kSpaceCount> kMemoryNames = {
    "memory", "memory of the host", "disk"};
// As the page of a job has them.
constexpr std::array<std::string_view, kMemoryKindCount> kKindColours = {
    "#2f7f78", "#c8853b", "#5b7fb5", "#a5688f", "#7d9a4a", "#8a8f98"};

// What a device holds of the first `kinds` together.
struct StripLayer {
  size_t kinds = kMemoryKindCount;
  std::string_view fill = "#9ecae1";
  std::string_view stroke = "#3182bd";
};

// "1.12 GiB, 3 %": of what the device has.
std::string MemoryText(int64_t bytes, int64_t budget) {
  if (budget <= 0) return FormatBytes(bytes);
  return fmt::format("{}, {:.0f} %", FormatBytes(bytes),
                     100.0 * static_cast<double>(bytes) / static_cast<double>(budget));
}

bool HasKind(const MemorySeries& series, size_t kind) {
  return std::any_of(series.begin(), series.end(),
                     [kind](const MemorySample& sample) { return sample.bytes[kind] > 0; });
}

class StripDrawer {
 public:
  StripDrawer(const planner::Plan& plan, const planner::Simulation& simulation,
              const mesh::Topology& topology, Canvas& canvas)
      : plan_(plan),
        topology_(topology),
        memories_(AllMemoryOverTime(plan.Main(), simulation)),
        scale_{simulation.makespan_s},
        canvas_(canvas) {
    std::set<int> stages;
    for (size_t p = 0; p < plan.Main().size(); ++p) {
      if (stages.insert(plan.Main()[p].stage.value()).second) programs_.push_back(p);
    }
    kinds_apart_ = MostBytes(ir::Space::kHost) > 0 || MostBytes(ir::Space::kDisk) > 0;
  }

  int Run(int y) {
    for (size_t s = 0; s < ir::kSpaceCount; ++s) {
      const auto space = static_cast<ir::Space>(s);
      const bool device = space == ir::Space::kDevice;
      const int64_t most = std::max<int64_t>(device ? 1 : 0, MostBytes(space));
      if (most == 0) continue;
      canvas_.Text(
          kSvgMargin, y += kSvgLine,
          fmt::format("{} over time, {} allocated at most", kMemoryNames[s], FormatBytes(most)),
          "bold");
      y += kSvgLine / 2;
      if (device && kinds_apart_) y = DrawKinds(y);
      for (const size_t program : programs_) {
        if (memories_[s][program].empty()) continue;
        DrawStrip(program, space, most, y);
        y += kStripHeight + kStripGap;
      }
    }
    return y;
  }

 private:
  int64_t AllocatedBytes(size_t program, ir::Space space) const {
    MW_CHECK(program < plan_.memory.size()) << "no memory of program " << program;
    const planner::DeviceMemory& memory = plan_.memory[program];
    return space == ir::Space::kDevice ? memory.total_bytes : memory.Far(space).total_bytes;
  }

  // Of all devices, drawn or not.
  int64_t MostBytes(ir::Space space) const {
    int64_t most = 0;
    for (size_t p = 0; p < plan_.memory.size(); ++p) {
      most = std::max(most, AllocatedBytes(p, space));
    }
    return most;
  }

  // What colours mean, in the order of the layers from below; returns the y below.
  int DrawKinds(int y) {
    const auto drawn = [this](size_t kind) {
      return std::any_of(memories_.begin(), memories_.end(), [&](const auto& of_programs) {
        return std::any_of(programs_.begin(), programs_.end(),
                           [&](size_t p) { return HasKind(of_programs[p], kind); });
      });
    };
    double x = kPlotLeft;
    for (size_t k = 0; k < kMemoryKindCount; ++k) {
      if (!drawn(k)) continue;
      const std::string_view name = ir::MemoryKindName(static_cast<ir::MemoryKind>(k));
      canvas_.Rect(x, 14, y, 14, kKindColours[k]);
      canvas_.Text(x + 20, y + 12, name);
      x += 40 + static_cast<double>(name.size()) * kSvgChar;
    }
    return y + kSvgLine + kSvgLine / 2;
  }

  // The highest first, so that each hides what is below it.
  std::vector<StripLayer> LayersOf(const MemorySeries& series) const {
    if (!kinds_apart_) return {StripLayer{}};
    std::vector<StripLayer> layers;
    for (size_t k = kMemoryKindCount; k-- > 0;) {
      if (HasKind(series, k)) layers.push_back({k + 1, kKindColours[k], kKindColours[k]});
    }
    return layers;
  }

  // `most` bytes are as high as the strip. A line is what a device has, where that is no more.
  void DrawStrip(size_t program, ir::Space space, int64_t most, int y) {
    const int bottom = y + kStripHeight;
    const auto height = [&](int64_t bytes) {
      return bottom - kStripHeight * static_cast<double>(bytes) / static_cast<double>(most);
    };
    canvas_.Rect(kPlotLeft, kPlotWidth, y, kStripHeight, kIdleColour);
    const MemorySeries& series = memories_[static_cast<size_t>(space)][program];
    for (const StripLayer& layer : LayersOf(series)) {
      std::string path = fmt::format("M{:.1f} {}", kPlotLeft, bottom);
      double last_x = kPlotLeft;
      for (const MemorySample& sample : series) {
        const auto* const end = sample.bytes.data() + layer.kinds;
        last_x = scale_.At(sample.time_s);
        path += fmt::format(" L{:.1f} {:.1f}", last_x,
                            height(std::accumulate(sample.bytes.data(), end, int64_t{0})));
      }
      canvas_.body += fmt::format("<path d=\"{} L{:.1f} {} Z\" fill=\"{}\" stroke=\"{}\"/>\n", path,
                                  last_x, bottom, layer.fill, layer.stroke);
    }
    const int64_t budget = space == ir::Space::kDevice ? DeviceBytes(program) : 0;
    if (budget > 0 && budget <= most) {
      canvas_.body += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{2:.1f}\" x2=\"{1:.1f}\" y2=\"{2:.1f}\" "
          "stroke=\"#d62728\"/>\n",
          kPlotLeft, kPlotLeft + kPlotWidth, height(budget));
    }
    canvas_.Text(kSvgMargin, y + kSvgLine, RowLabel(plan_.Main()[program]));
    canvas_.Text(kSvgMargin, y + 2 * kSvgLine, MemoryText(AllocatedBytes(program, space), budget));
  }

  // 0: unknown.
  int64_t DeviceBytes(size_t program) const {
    const auto device = plan_.Main()[program].device.index();
    MW_CHECK(device < topology_.devices.size()) << "device " << device << " is not of the topology";
    return topology_.devices[device].memory_bytes;
  }

  const planner::Plan& plan_;
  const mesh::Topology& topology_;
  const MemoriesOverTime memories_;
  const TimeScale scale_;
  Canvas& canvas_;
  std::vector<size_t> programs_;  // the first of each stage
  bool kinds_apart_ = false;
};

}  // namespace

int DrawMemoryStrips(const planner::Plan& plan, const planner::Simulation& simulation,
                     const mesh::Topology& topology, int y, Canvas& canvas) {
  return StripDrawer(plan, simulation, topology, canvas).Run(y);
}

}  // namespace meshwright::report
