// By which address other machines reach what listens on all of this one's.
//
// Thread rule: OwnAddresses asks the kernel; the rest is pure.
#pragma once

#include <string>
#include <vector>

namespace meshwright::cli {

struct OwnAddress {
  std::string text;  // "10.0.0.1", "fd00::1"
  bool up = true;    // its interface is
};

// Of all interfaces, in the kernel's order.
std::vector<OwnAddress> OwnAddresses();

// "0.0.0.0" and "::" are no addresses to dial: then the first of `own` that others can, IPv4 before
// IPv6; "": there is none. Else `bind` itself.
std::string DialableAddress(const std::string& bind, const std::vector<OwnAddress>& own);

}  // namespace meshwright::cli
