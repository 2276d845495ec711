#include "config/cluster_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "base/gpu_reserve.h"
#include "base/text.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 1
// Its assertions judge input: without them a key that is none is an error as any other.
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

namespace meshwright::config {
namespace {

constexpr double kGib = 1 << 30;

constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;
constexpr double kMostNumber = 1e12;

struct Bounds {
  double low = 0;
  double high = 0;
  bool open_low = false;  // low itself is out
};

std::string PlaceIn(const std::string& file, const toml::source_region& region) {
  return fmt::format("{}:{}:{}", file, region.begin.line, region.begin.column);
}

std::string TextOfNode(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

// The keys of one table, taken one by one; what was not asked for is unknown.
class TableReader {
 public:
  TableReader(const toml::table& table, const std::string& file, std::string section)
      : table_(table), file_(file), section_(std::move(section)) {}

  // Whether the key is there; the value stays as it is otherwise.
  Result<bool> Text(const std::string& key, std::string* value) {
    const toml::node* node = Find(key);
    if (node == nullptr) return false;
    if (!node->is_string()) return Fail(WrongType(key, *node, "text"));
    *value = *node->value<std::string>();
    if (value->empty()) return Fail(Wrong(key, "must not be empty"));
    return true;
  }

  Result<bool> Integer(const std::string& key, int64_t* value, const Bounds& bounds) {
    const toml::node* node = Find(key);
    if (node == nullptr) return false;
    if (!node->is_integer()) return Fail(WrongType(key, *node, "an integer"));
    *value = *node->value<int64_t>();
    MW_TRY(CheckBounds(key, static_cast<double>(*value), bounds));
    return true;
  }

  Result<bool> Number(const std::string& key, double* value, const Bounds& bounds) {
    const toml::node* node = Find(key);
    if (node == nullptr) return false;
    if (!node->is_number()) return Fail(WrongType(key, *node, "a number"));
    *value =
        node->is_integer() ? static_cast<double>(*node->value<int64_t>()) : *node->value<double>();
    MW_TRY(CheckBounds(key, *value, bounds));
    return true;
  }

  const toml::node* Find(const std::string& key) {
    known_.push_back(key);
    return table_.get(key);
  }

  Status Missing(const std::string& key) const {
    return InvalidArgument(fmt::format("{}: {} needs {}", PlaceIn(file_, table_.source()),
                                       section_.empty() ? "the file" : section_, key));
  }

  Status Wrong(const std::string& key, std::string_view what) const {
    const toml::node* node = table_.get(key);
    const std::string place = PlaceIn(file_, node != nullptr ? node->source() : table_.source());
    return InvalidArgument(fmt::format("{}: {}{}", place, NameOf(key), what));
  }

  // After all keys were asked for.
  Status CheckNothingElse() const {
    for (const auto& [key, value] : table_) {
      const std::string name(key.str());
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      return InvalidArgument(fmt::format(
          "{}: unknown key '{}'{}{}; known: {}", PlaceIn(file_, key.source()), name,
          section_.empty() ? "" : " in " + section_, DidYouMean(name, known_), Join(known_, ", ")));
    }
    return OkStatus();
  }

 private:
  std::string NameOf(const std::string& key) const {
    return section_.empty() ? key + " " : fmt::format("{} of {} ", key, section_);
  }

  Status WrongType(const std::string& key, const toml::node& node, std::string_view wanted) const {
    return Wrong(key, fmt::format("must be {}, is {}", wanted, TextOfNode(node)));
  }

  Status CheckBounds(const std::string& key, double value, const Bounds& bounds) const {
    const bool above = bounds.open_low ? value > bounds.low : value >= bounds.low;
    if (above && value <= bounds.high) return OkStatus();
    return Wrong(key, fmt::format("is {:.10g}; it must be in {}{:.10g}, {:.10g}]", value,
                                  bounds.open_low ? '(' : '[', bounds.low, bounds.high));
  }

  const toml::table& table_;
  const std::string& file_;
  std::string section_;
  std::vector<std::string> known_;
};

Status AdjustMemory(TableReader& reader, mesh::DeviceProfile& profile) {
  double memory_gib = 0;
  MW_ASSIGN_OR_RETURN(const bool has_memory,
                      reader.Number("memory_gib", &memory_gib, {0, 1e6, true}));
  double reserve_gib = 0;
  MW_ASSIGN_OR_RETURN(const bool has_reserve,
                      reader.Number("memory_reserve_gib", &reserve_gib, {0, 1e6}));
  if (has_memory) {
    profile.memory_bytes = std::max<int64_t>(1, std::llround(memory_gib * kGib));
    profile.reserve_bytes = std::min(profile.reserve_bytes, GpuReserveBytes(profile.memory_bytes));
  }
  if (has_reserve) profile.reserve_bytes = std::llround(reserve_gib * kGib);
  if (profile.reserve_bytes > 0 && profile.reserve_bytes >= profile.memory_bytes) {
    return reader.Wrong("memory_reserve_gib",
                        fmt::format("leaves nothing of the {:.3g} GiB that the device has",
                                    static_cast<double>(profile.memory_bytes) / kGib));
  }
  return OkStatus();
}

Status AdjustKind(TableReader& reader, mesh::DeviceProfile& profile) {
  std::string kind(mesh::DeviceKindName(profile.kind));
  MW_TRY(reader.Text("kind", &kind));
  if (kind != "cpu" && kind != "gpu") {
    return reader.Wrong("kind", fmt::format("is \"{}\"; it must be cpu or gpu", kind));
  }
  profile.kind = kind == "gpu" ? mesh::DeviceKind::kGpu : mesh::DeviceKind::kCpu;
  return OkStatus();
}

class ClusterParser {
 public:
  explicit ClusterParser(const ClusterSource& source) : source_(source) {}

  Result<mesh::Cluster> Run(const toml::table& root) {
    TableReader reader(root, source_.file, "");
    cluster_.name = std::filesystem::path(source_.file).stem().string();
    MW_TRY(reader.Text("name", &cluster_.name));
    const toml::node* profiles = reader.Find("profiles");
    const toml::node* hosts = reader.Find("hosts");
    const toml::node* links = reader.Find("links");
    MW_TRY(reader.CheckNothingElse());
    MW_TRY(ForEach(profiles, "profiles", &ClusterParser::ReadProfile));
    if (hosts == nullptr) return Fail(reader.Missing("[[hosts]]"));
    MW_TRY(ForEach(hosts, "hosts", &ClusterParser::ReadHosts));
    if (links != nullptr) MW_TRY(ReadLinks(*links));
    const Result<mesh::Topology> topology = mesh::TopologyOfCluster(cluster_);
    if (topology) return std::move(cluster_);
    return Fail(InvalidArgument(fmt::format("{}: {}", source_.file, topology.error().message())));
  }

 private:
  using ReadEntry = Status (ClusterParser::*)(const toml::table&);

  // Every [[name]] of the file.
  Status ForEach(const toml::node* node, const std::string& name, ReadEntry read) {
    if (node == nullptr) return OkStatus();
    const toml::array* entries = node->as_array();
    if (entries == nullptr || !entries->is_homogeneous(toml::node_type::table)) {
      return InvalidArgument(fmt::format("{}: '{}' is a list of tables; write [[{}]]",
                                         PlaceIn(source_.file, node->source()), name, name));
    }
    for (const toml::node& entry : *entries) MW_TRY((this->*read)(*entry.as_table()));
    return OkStatus();
  }

  Status ReadHosts(const toml::table& table) {
    TableReader reader(table, source_.file, "[[hosts]]");
    mesh::HostGroup group;
    constexpr double kMost = mesh::kMostDevices;
    MW_ASSIGN_OR_RETURN(const bool has_name, reader.Text("name", &group.name));
    if (!has_name) group.name = fmt::format("host{}-", cluster_.hosts.size());
    MW_TRY(reader.Integer("count", &group.count, {1, kMost}));
    MW_ASSIGN_OR_RETURN(const bool has_devices,
                        reader.Integer("devices", &group.devices, {1, kMost}));
    MW_ASSIGN_OR_RETURN(const bool has_profile, reader.Text("device", &group.profile));
    MW_TRY(reader.Integer("cores", &group.cores, {1, kMost}));
    MW_TRY(reader.Integer("threads_per_device", &group.threads_per_device, {1, kMost}));
    double nic_gbyte_per_s = 0;
    MW_TRY(reader.Number("nic_gbyte_per_s", &nic_gbyte_per_s, {0, kMostNumber, true}));
    group.nic_bytes_per_s = nic_gbyte_per_s * kGiga;
    double host_memory_gib = 0;
    MW_TRY(reader.Number("host_memory_gib", &host_memory_gib, {0, 1e6, true}));
    group.memory_bytes = std::llround(host_memory_gib * kGib);
    double disk_gib = 0;
    MW_TRY(reader.Number("disk_gib", &disk_gib, {0, 1e6, true}));
    group.disk_bytes = std::llround(disk_gib * kGib);
    MW_TRY(reader.CheckNothingElse());
    if (!has_devices) return reader.Missing("devices, how many each host has");
    if (!has_profile) return reader.Missing("device, the name of a profile");
    if (!FindProfile(group.profile)) return UnknownProfile(reader, "device", group.profile);
    cluster_.hosts.push_back(std::move(group));
    return OkStatus();
  }

  mesh::SharedProfile FindProfile(const std::string& name) const {
    for (const auto* table : {&cluster_.profiles, &mesh::KnownDeviceProfiles()}) {
      if (const auto it = table->find(name); it != table->end()) return it->second;
    }
    return nullptr;
  }

  Status UnknownProfile(const TableReader& reader, const std::string& key,
                        const std::string& name) const {
    std::vector<std::string> names;
    for (const auto* table : {&cluster_.profiles, &mesh::KnownDeviceProfiles()}) {
      for (const auto& [known, profile] : *table) names.push_back(known);
    }
    return reader.Wrong(key, fmt::format("names the unknown device '{}'{}; known: {}", name,
                                         DidYouMean(name, names), Join(names, ", ")));
  }

  Status ReadProfile(const toml::table& table) {
    TableReader reader(table, source_.file, "[[profiles]]");
    std::string name, like, file;
    MW_ASSIGN_OR_RETURN(const bool has_name, reader.Text("name", &name));
    MW_ASSIGN_OR_RETURN(const bool has_like, reader.Text("like", &like));
    MW_ASSIGN_OR_RETURN(const bool has_file, reader.Text("file", &file));
    if (!has_name) return reader.Missing("name");
    if (has_like == has_file) return reader.Missing("one of like and file");
    mesh::DeviceProfile profile;
    if (has_like) {
      const mesh::SharedProfile base = FindProfile(like);
      if (base == nullptr) return UnknownProfile(reader, "like", like);
      profile = *base;
      profile.source = fmt::format("{}: like {}", source_.file, like);
    } else {
      MW_ASSIGN_OR_RETURN(profile, ReadProfileFile(reader, file));
    }
    profile.name = name;
    MW_TRY(AdjustProfile(reader, profile));
    MW_TRY(reader.CheckNothingElse());
    if (cluster_.profiles.contains(name)) return reader.Wrong("name", "is there twice; rename one");
    cluster_.profiles[name] = std::make_shared<const mesh::DeviceProfile>(std::move(profile));
    return OkStatus();
  }

  Result<mesh::DeviceProfile> ReadProfileFile(const TableReader& reader, const std::string& file) {
    const std::filesystem::path path =
        std::filesystem::path(source_.file).parent_path() / file;  // absolute ones stay
    if (!source_.read_file) return Fail(reader.Wrong("file", "cannot be read here"));
    const Result<std::string> text = source_.read_file(path.string());
    if (!text) return Fail(reader.Wrong("file", fmt::format(": {}", text.error().message())));
    auto profile = mesh::ParseDeviceProfile(*text);
    if (profile) return profile;
    return Fail(
        reader.Wrong("file", fmt::format("{}: {}", path.string(), profile.error().message())));
  }

  static Status AdjustProfile(TableReader& reader, mesh::DeviceProfile& profile) {
    MW_TRY(AdjustKind(reader, profile));
    double gbyte_per_s = 0, speed = 1;
    MW_ASSIGN_OR_RETURN(const bool has_rate,
                        reader.Number("memory_gbyte_per_s", &gbyte_per_s, {0, 1e6, true}));
    MW_TRY(reader.Number("speed", &speed, {0, 1e6, true}));
    MW_TRY(AdjustMemory(reader, profile));
    const double bandwidth =
        has_rate ? gbyte_per_s * kGiga / profile.Rates(mesh::KernelClass::kElementwise).bytes_per_s
                 : 1;
    for (double& peak : profile.peak_flops_per_s) peak *= speed;
    for (mesh::KernelRates& rates : profile.kernels) {
      rates.bytes_per_s *= bandwidth;
      for (mesh::RateCurve& curve : rates.curves) {
        for (mesh::RatePoint& point : curve) point.flops_per_s *= speed;
      }
    }
    return OkStatus();
  }

  Status ReadLinks(const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      return InvalidArgument(fmt::format("{}: 'links' is a table; write [links.host]",
                                         PlaceIn(source_.file, node.source())));
    }
    TableReader reader(*table, source_.file, "[links]");
    const std::pair<const char*, mesh::LinkCost*> classes[] = {
        {"host", &cluster_.links.host}, {"network", &cluster_.links.network}};
    for (const auto& [name, cost] : classes) {
      const toml::node* link = reader.Find(name);
      if (link == nullptr) continue;
      if (!link->is_table()) return reader.Wrong(name, "is a table; write [links.host]");
      TableReader own(*link->as_table(), source_.file, fmt::format("[links.{}]", name));
      MW_TRY(ReadLinkCost(own, *cost));
      MW_TRY(own.CheckNothingElse());
    }
    const toml::node* slow = reader.Find("slow");
    MW_TRY(reader.CheckNothingElse());
    return ForEach(slow, "links.slow", &ClusterParser::ReadSlowLink);
  }

  static Status ReadLinkCost(TableReader& reader, mesh::LinkCost& cost) {
    double latency_us = 0, gbyte_per_s = 0;
    MW_ASSIGN_OR_RETURN(const bool has_latency,
                        reader.Number("latency_us", &latency_us, {0, kMostNumber}));
    MW_ASSIGN_OR_RETURN(const bool has_rate,
                        reader.Number("gbyte_per_s", &gbyte_per_s, {0, kMostNumber, true}));
    if (has_latency) cost.alpha_s = latency_us * kMicro;
    if (has_rate) cost.seconds_per_byte = 1 / (gbyte_per_s * kGiga);
    return OkStatus();
  }

  Status ReadSlowLink(const toml::table& table) {
    TableReader reader(table, source_.file, "[[links.slow]]");
    mesh::SlowLink slow;
    slow.cost = cluster_.links.network;
    MW_ASSIGN_OR_RETURN(const bool has_from, reader.Text("from", &slow.from));
    MW_ASSIGN_OR_RETURN(const bool has_to, reader.Text("to", &slow.to));
    MW_TRY(ReadLinkCost(reader, slow.cost));
    MW_TRY(reader.CheckNothingElse());
    if (!has_from || !has_to) return reader.Missing("from and to, names of [[hosts]]");
    std::vector<std::string> names;
    for (const mesh::HostGroup& group : cluster_.hosts) names.push_back(group.name);
    for (const auto& [key, end] : {std::pair{"from", slow.from}, {"to", slow.to}}) {
      if (std::find(names.begin(), names.end(), end) != names.end()) continue;
      return reader.Wrong(key, fmt::format("names unknown hosts '{}'{}; known: {}", end,
                                           DidYouMean(end, names), Join(names, ", ")));
    }
    cluster_.links.slow.push_back(std::move(slow));
    return OkStatus();
  }

  const ClusterSource& source_;
  mesh::Cluster cluster_;
};

}  // namespace

Result<mesh::Cluster> ParseClusterFile(const ClusterSource& source) {
  const toml::parse_result parsed = toml::parse(source.text, source.file);
  if (!parsed.succeeded()) {
    return Fail(InvalidArgument(fmt::format("{}: {}", PlaceIn(source.file, parsed.error().source()),
                                            parsed.error().description())));
  }
  return ClusterParser(source).Run(parsed.table());
}

Result<mesh::Cluster> LoadClusterFile(const std::string& path) {
  ClusterSource source;
  MW_ASSIGN_OR_RETURN(source.text, ReadFile(path));
  source.file = path;
  source.read_file = [](const std::string& file) { return ReadFile(file); };
  return ParseClusterFile(source);
}

}  // namespace meshwright::config
