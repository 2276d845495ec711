// The axes along which the devices of a stage lie, as data: a kind of axis is a row of kAxisKinds,
// and how many devices a stage has along each is a value.
//
// Thread rule: values.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace meshwright::planner {

// What an axis divides: rows of the batch; rows too, and experts where there are some; tokens of a
// row; what the model is made of.
enum class AxisRole : uint8_t { kRows, kExperts, kSequence, kModel };

// Major axis first: devices that differ in the last one are neighbours.
enum class Axis : uint8_t { kData, kExpert, kContext, kTensor };

inline constexpr char kMicro[] = "micro";  // the microbatch's index, an axis in time
inline constexpr char kData[] = "data";
inline constexpr char kExpert[] = "expert";
inline constexpr char kExpertLanes[] = "expert2";  // within a host, where `expert` is hosts
inline constexpr char kContext[] = "context";
inline constexpr char kTensor[] = "tensor";  // further axes of the tensor group: tensor2, ...

struct AxisKind {
  Axis axis;
  const char* name;  // of its axes in shardings; a grid appends numbers
  AxisRole role;
};

inline constexpr std::array<AxisKind, 4> kAxisKinds = {{
    {Axis::kData, kData, AxisRole::kRows},
    {Axis::kExpert, kExpert, AxisRole::kExperts},
    {Axis::kContext, kContext, AxisRole::kSequence},
    {Axis::kTensor, kTensor, AxisRole::kModel},
}};

// Of an axis in a sharding.
constexpr AxisRole RoleOf(std::string_view name) {
  for (const AxisKind& kind : kAxisKinds) {
    if (name.starts_with(kind.name)) return kind.role;
  }
  return AxisRole::kRows;  // microbatches
}

// The first axis of a role.
constexpr Axis AxisOf(AxisRole role) {
  for (const AxisKind& kind : kAxisKinds) {
    if (kind.role == role) return kind.axis;
  }
  return Axis::kData;
}

// Whether devices along the axis have rows of the batch of their own.
constexpr bool SplitsRows(AxisRole role) {
  return role == AxisRole::kRows || role == AxisRole::kExperts;
}

// How many devices a stage has along each axis.
class Degrees {
 public:
  constexpr Degrees() { sizes_.fill(1); }
  constexpr Degrees(int64_t data, int64_t tensor) : Degrees() {
    (*this)[Axis::kData] = data;
    (*this)[Axis::kTensor] = tensor;
  }

  constexpr int64_t& operator[](Axis axis) { return sizes_[static_cast<size_t>(axis)]; }
  constexpr int64_t operator[](Axis axis) const { return sizes_[static_cast<size_t>(axis)]; }
  // Replicas: devices, or groups of them, with rows of their own.
  int64_t data() const { return (*this)[Axis::kData] * (*this)[Axis::kExpert]; }
  int64_t expert() const { return (*this)[Axis::kExpert]; }
  int64_t context() const { return (*this)[Axis::kContext]; }
  int64_t tensor() const { return (*this)[Axis::kTensor]; }
  int64_t device_count() const {
    int64_t count = 1;
    for (const int64_t size : sizes_) count *= size;
    return count;
  }
  // Devices that share a row of the batch.
  int64_t per_replica() const { return device_count() / data(); }
  friend bool operator==(const Degrees&, const Degrees&) = default;
  friend auto operator<=>(const Degrees&, const Degrees&) = default;

 private:
  std::array<int64_t, kAxisKinds.size()> sizes_ = {};
};

}  // namespace meshwright::planner
