// Text of a device profile:
//   file   = { line "\n" }
//   line   = "profile" text | "source" text | "memory_bytes" integer | "launch_s" number
//          | "reserve_bytes" integer | "kind" ( "cpu" | "gpu" )
//          | "peak" dtype number | "bytes_per_s" kernel number
//          | "rate" kernel dtype number ":" number { number ":" number }
//          | "link" ( "process" | "host" | "memory" | "disk" ) number number
//          | "host_bytes_per_s" number
//          | "host_compute_share" number
//          | "#" anything | ""
//   text   = double quotes around anything but a double quote.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "mesh/device_profile.h"

namespace meshwright::mesh {
namespace {

constexpr size_t kMostPoints = 256;

std::vector<std::string> KernelNames() {
  std::vector<std::string> names;
  for (size_t k = 0; k < kKernelClassCount; ++k) {
    names.emplace_back(KernelClassName(static_cast<KernelClass>(k)));
  }
  return names;
}

// One line, word by word.
class LineReader {
 public:
  LineReader(std::string_view line, size_t number) : rest_(Trim(line)), number_(number) {}

  bool AtEnd() const { return rest_.empty() || rest_.front() == '#'; }

  std::string_view Word() {
    const size_t end = std::min(rest_.find_first_of(" \t"), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_ = Trim(rest_.substr(end));
    return word;
  }

  Status Wrong(std::string_view what) const {
    return InvalidArgument(fmt::format("line {}: {}", number_, what));
  }

  template <typename T>
  Result<T> Number(std::string_view text, std::string_view name) const {
    T value = {};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
      return Fail(Wrong(fmt::format("{} is '{}', not a number", name, text)));
    }
    return value;
  }

  Result<std::string> Quoted(std::string_view name) {
    const size_t end = rest_.size() < 2 ? std::string_view::npos : rest_.find('"', 1);
    if (end == std::string_view::npos || rest_.front() != '"') {
      return Fail(Wrong(fmt::format("{} wants a text in double quotes", name)));
    }
    std::string text(rest_.substr(1, end - 1));
    rest_ = Trim(rest_.substr(end + 1));
    return text;
  }

  Result<ir::DType> DType() {
    auto dtype = ir::ParseDType(Word());
    if (!dtype) return Fail(Wrong(dtype.error().message()));
    return *dtype;
  }

  Result<KernelClass> Kernel() {
    const std::string_view word = Word();
    const std::vector<std::string> names = KernelNames();
    for (size_t k = 0; k < names.size(); ++k) {
      if (names[k] == word) return static_cast<KernelClass>(k);
    }
    return Fail(Wrong(fmt::format("unknown kernel class '{}'{}; known: {}", word,
                                  DidYouMean(word, names), Join(names, ", "))));
  }

 private:
  std::string_view rest_;
  size_t number_;
};

Status ReadRate(LineReader& line, DeviceProfile& profile) {
  MW_ASSIGN_OR_RETURN(const KernelClass kernel, line.Kernel());
  MW_ASSIGN_OR_RETURN(const ir::DType dtype, line.DType());
  RateCurve& curve = profile.Rates(kernel).curves[static_cast<size_t>(dtype)];
  if (!curve.empty()) return line.Wrong("this curve was given before");
  while (!line.AtEnd()) {
    const std::string_view word = line.Word();
    const size_t colon = word.find(':');
    if (colon == std::string_view::npos) {
      return line.Wrong(fmt::format("'{}' is no point; write FLOPs:FLOPs-per-second", word));
    }
    if (curve.size() == kMostPoints) {
      return line.Wrong(fmt::format("more than {} points", kMostPoints));
    }
    RatePoint& point = curve.emplace_back();
    MW_ASSIGN_OR_RETURN(point.flops, line.Number<double>(word.substr(0, colon), "FLOPs"));
    MW_ASSIGN_OR_RETURN(point.flops_per_s, line.Number<double>(word.substr(colon + 1), "the rate"));
  }
  return curve.empty() ? line.Wrong("a curve needs a point") : OkStatus();
}

Status ReadLink(LineReader& line, MeasuredLinks& links) {
  const std::string_view name = line.Word();
  if (name != "process" && name != "host" && name != "memory" && name != "disk") {
    return line.Wrong(fmt::format("unknown link '{}'; known: process, host, memory, disk", name));
  }
  std::optional<LinkCost>& link = name == "process"  ? links.process
                                  : name == "host"   ? links.host
                                  : name == "memory" ? links.memory
                                                     : links.disk;
  if (link) return line.Wrong(fmt::format("link {} was given before", name));
  link.emplace();
  MW_ASSIGN_OR_RETURN(link->alpha_s, line.Number<double>(line.Word(), "seconds per message"));
  MW_ASSIGN_OR_RETURN(link->seconds_per_byte, line.Number<double>(line.Word(), "seconds per byte"));
  return OkStatus();
}

Status ReadKind(LineReader& line, std::optional<DeviceKind>& kind) {
  const std::string_view word = line.Word();
  for (const DeviceKind each : {DeviceKind::kCpu, DeviceKind::kGpu}) {
    if (DeviceKindName(each) == word) kind = each;
  }
  if (kind && DeviceKindName(*kind) == word) return OkStatus();
  return line.Wrong(fmt::format("kind is '{}'; it must be cpu or gpu", word));
}

Status ReadLine(LineReader& line, DeviceProfile& profile, std::optional<DeviceKind>& kind) {
  const std::string key(line.Word());
  if (key == "profile") {
    MW_ASSIGN_OR_RETURN(profile.name, line.Quoted(key));
  } else if (key == "kind") {
    MW_TRY(ReadKind(line, kind));
  } else if (key == "source") {
    MW_ASSIGN_OR_RETURN(profile.source, line.Quoted(key));
  } else if (key == "memory_bytes") {
    MW_ASSIGN_OR_RETURN(profile.memory_bytes, line.Number<int64_t>(line.Word(), key));
  } else if (key == "reserve_bytes") {
    MW_ASSIGN_OR_RETURN(profile.reserve_bytes, line.Number<int64_t>(line.Word(), key));
  } else if (key == "launch_s") {
    MW_ASSIGN_OR_RETURN(profile.launch_s, line.Number<double>(line.Word(), key));
  } else if (key == "peak") {
    MW_ASSIGN_OR_RETURN(const ir::DType dtype, line.DType());
    MW_ASSIGN_OR_RETURN(profile.peak_flops_per_s[static_cast<size_t>(dtype)],
                        line.Number<double>(line.Word(), key));
  } else if (key == "bytes_per_s") {
    MW_ASSIGN_OR_RETURN(const KernelClass kernel, line.Kernel());
    MW_ASSIGN_OR_RETURN(profile.Rates(kernel).bytes_per_s, line.Number<double>(line.Word(), key));
  } else if (key == "rate") {
    MW_TRY(ReadRate(line, profile));
  } else if (key == "host_bytes_per_s") {
    MW_ASSIGN_OR_RETURN(profile.host_bytes_per_s, line.Number<double>(line.Word(), key));
  } else if (key == "host_compute_share") {
    MW_ASSIGN_OR_RETURN(profile.host_compute_share, line.Number<double>(line.Word(), key));
  } else if (key == "link") {
    MW_TRY(ReadLink(line, profile.links));
  } else {
    const std::vector<std::string> known = {
        "profile",       "source",           "kind",
        "memory_bytes",  "launch_s",         "peak",
        "reserve_bytes", "bytes_per_s",      "rate",
        "link",          "host_bytes_per_s", "host_compute_share"};
    return line.Wrong(fmt::format("unknown word '{}'{}; known: {}", key, DidYouMean(key, known),
                                  Join(known, ", ")));
  }
  return line.AtEnd() ? OkStatus() : line.Wrong(fmt::format("'{}' after its end", line.Word()));
}

// What the text form cannot hold inside of quotes becomes a space.
std::string Quote(std::string text) {
  for (char& c : text) {
    if (c == '"' || c == '\n' || c == '\r') c = ' ';
  }
  return '"' + text + '"';
}

}  // namespace

std::string FormatDeviceProfile(const DeviceProfile& profile) {
  std::string text =
      fmt::format("profile {}\nsource {}\nmemory_bytes {}\nlaunch_s {}\n", Quote(profile.name),
                  Quote(profile.source), profile.memory_bytes, profile.launch_s);
  // Only where it has to be said: who has never heard of it reads what it always has.
  if (profile.kind != KindOfProfileName(profile.name)) {
    text += fmt::format("kind {}\n", DeviceKindName(profile.kind));
  }
  if (profile.reserve_bytes > 0) text += fmt::format("reserve_bytes {}\n", profile.reserve_bytes);
  for (size_t d = 0; d < kDTypeCount; ++d) {
    if (profile.peak_flops_per_s[d] == 0) continue;
    text += fmt::format("peak {} {}\n", ir::DTypeName(static_cast<ir::DType>(d)),
                        profile.peak_flops_per_s[d]);
  }
  for (size_t k = 0; k < kKernelClassCount; ++k) {
    const std::string_view kernel = KernelClassName(static_cast<KernelClass>(k));
    text += fmt::format("bytes_per_s {} {}\n", kernel, profile.kernels[k].bytes_per_s);
    for (size_t d = 0; d < kDTypeCount; ++d) {
      const RateCurve& curve = profile.kernels[k].curves[d];
      if (curve.empty()) continue;
      text += fmt::format("rate {} {}", kernel, ir::DTypeName(static_cast<ir::DType>(d)));
      for (const RatePoint& point : curve) {
        text += fmt::format(" {}:{}", point.flops, point.flops_per_s);
      }
      text += '\n';
    }
  }
  const auto link = [](std::string_view name, const std::optional<LinkCost>& cost) {
    return cost ? fmt::format("link {} {} {}\n", name, cost->alpha_s, cost->seconds_per_byte) : "";
  };
  if (profile.host_bytes_per_s > 0) {
    text += fmt::format("host_bytes_per_s {}\n", profile.host_bytes_per_s);
  }
  if (profile.host_compute_share > 0) {
    text += fmt::format("host_compute_share {}\n", profile.host_compute_share);
  }
  return text + link("process", profile.links.process) + link("host", profile.links.host) +
         link("memory", profile.links.memory) + link("disk", profile.links.disk);
}

Result<DeviceProfile> ParseDeviceProfile(std::string_view text) {
  DeviceProfile profile;
  std::optional<DeviceKind> kind;
  size_t number = 0;
  for (const std::string& content : Split(text, '\n')) {
    LineReader line(content, ++number);
    if (!line.AtEnd()) MW_TRY(ReadLine(line, profile, kind));
  }
  profile.kind = kind.value_or(KindOfProfileName(profile.name));
  MW_TRY(CheckDeviceProfile(profile));
  return profile;
}

}  // namespace meshwright::mesh
