// Submeshes on the hosts of a device class: which hosts and devices each stage gets.
//
// A submesh is either some devices of one host or all devices of several equal hosts. Counting
// devices does not say whether submeshes fit: three times 5 devices do not fit two hosts of 8.
//
// Thread rule: values, pure functions.
#pragma once

#include <compare>
#include <optional>
#include <span>
#include <vector>

namespace meshwright::search {

// hosts == 1: any devices_per_host devices of one host. hosts > 1: whole hosts that have exactly
// devices_per_host devices.
struct SubmeshShape {
  int hosts = 1;
  int devices_per_host = 1;
  int devices() const { return hosts * devices_per_host; }
  friend auto operator<=>(const SubmeshShape&, const SubmeshShape&) = default;
};

// Devices [first_device, first_device + devices_per_host) of each host.
struct SubmeshPlace {
  std::vector<int> hosts;  // ascending indices into the hosts given
  int first_device = 0;    // on each
};

// Places for all shapes, in their order, that share no device; nothing: there are none. Exact:
// submeshes of several hosts take theirs first (which of several equal hosts makes no difference),
// then a search packs the others, the largest first, into the fullest hosts first. Devices may stay
// idle. The search is exponential in the worst case; it visits an arrangement of free devices once,
// and takes a host that a submesh fills exactly without looking further.
std::optional<std::vector<SubmeshPlace>> PackSubmeshes(std::span<const int> host_devices,
                                                       std::span<const SubmeshShape> shapes);

}  // namespace meshwright::search
