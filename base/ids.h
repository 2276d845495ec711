// Strong ids: integers that do not mix. Id<Tag> has no conversion to or from another id or a bare
// integer.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>

namespace meshwright {

template <typename Tag, typename Rep = int32_t>
class Id {
 public:
  using rep = Rep;
  constexpr Id() = default;
  constexpr explicit Id(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  // The place in a vector. That of an invalid id is beyond the end of every vector.
  constexpr size_t index() const { return static_cast<size_t>(value_); }
  constexpr bool valid() const { return value_ != static_cast<Rep>(-1); }
  friend constexpr auto operator<=>(Id, Id) = default;
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << id.value_; }

 private:
  Rep value_ = static_cast<Rep>(-1);
};

// Graph positions (ir/graph.h).
using NodeId = Id<struct NodeTag>;
using ValueId = Id<struct ValueTag>;
// Program positions (ir/program.h).
using SlotId = Id<struct SlotTag>;
using ChannelId = Id<struct ChannelTag>;
using ExecutableIndex = Id<struct ExecutableTag>;
using StageIndex = Id<struct StageTag>;
// Position of a device in the job's global device list, 0-based.
using DeviceIndex = Id<struct DeviceTag>;
// Control plane.
using Term = Id<struct TermTag, uint64_t>;
using Incarnation = Id<struct IncarnationTag, uint64_t>;
using MeshGeneration = Id<struct MeshGenerationTag, uint64_t>;
using LaunchSeq = Id<struct LaunchSeqTag, uint64_t>;
using JobId = Id<struct JobTag, int64_t>;

}  // namespace meshwright

template <typename Tag, typename Rep>
struct std::hash<meshwright::Id<Tag, Rep>> {
  size_t operator()(meshwright::Id<Tag, Rep> id) const { return std::hash<Rep>()(id.value()); }
};
